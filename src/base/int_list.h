/*
 * int_list - a short list of numbers, such as an option --depth 0,100,1000 gives.
 */
#ifndef DECODE_BASE_INT_LIST_H
#define DECODE_BASE_INT_LIST_H

#define LIST_MAX 64

struct int_list {
    int items[LIST_MAX];
    int n;
};

#endif
