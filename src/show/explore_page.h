/*
 * explore_page - the parts of the page of explore.h that are the same in all pages. They are files
 * beside this one, explore.html, explore.css and explore.js, of which the Makefile makes these
 * strings. Private to explore.c.
 */
#pragma once

/* @NAME@ is a place for what put_place of explore.c knows by that name. */
extern const char explore_html[];
extern const char explore_css[], explore_js[];
/* "sha256-..." of style and script: what the page's content security policy allows to be used. */
extern const char explore_css_hash[], explore_js_hash[];
