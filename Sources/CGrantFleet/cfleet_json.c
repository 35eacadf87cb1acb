#include "cfleet.h"

#include <jansson.h>
#include <stdio.h>

void *cfleet_parse(const char *text, size_t length, char *reason, size_t size) {
    json_error_t error;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (value == NULL)
        snprintf(reason, size, "%s", error.text);
    return value;
}

// Each value that is parsed or made here has one owner.
void cfleet_free(void *value) {
    json_t *json = value;
    if (json != NULL && json->refcount != (size_t)-1)
        json_delete(json);
}

enum cfleet_kind cfleet_kind(const void *value) {
    switch (((const json_t *)value)->type) {
    case JSON_OBJECT:
        return CFLEET_OBJECT;
    case JSON_ARRAY:
        return CFLEET_ARRAY;
    case JSON_STRING:
        return CFLEET_STRING;
    case JSON_INTEGER:
        return CFLEET_INTEGER;
    case JSON_REAL:
        return CFLEET_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return CFLEET_BOOL;
    default:
        return CFLEET_NULL;
    }
}

bool cfleet_is_true(const void *value) { return ((const json_t *)value)->type == JSON_TRUE; }
int64_t cfleet_integer(const void *value) { return json_integer_value(value); }
double cfleet_number(const void *value) { return json_real_value(value); }

const char *cfleet_string(const void *value, size_t *length) {
    *length = json_string_length(value);
    return json_string_value(value);
}

size_t cfleet_count(const void *value) { return json_array_size(value); }
void *cfleet_item(const void *value, size_t index) { return json_array_get(value, index); }
void *cfleet_first(void *value) { return json_object_iter(value); }
void *cfleet_next(void *value, void *place) { return json_object_iter_next(value, place); }
const char *cfleet_key(void *place) { return json_object_iter_key(place); }
void *cfleet_member(void *place) { return json_object_iter_value(place); }

void *cfleet_make(enum cfleet_kind kind, bool is_true, int64_t integer, double number, const char *string, size_t length) {
    switch (kind) {
    case CFLEET_NULL:
        return json_null();
    case CFLEET_BOOL:
        return is_true ? json_true() : json_false();
    case CFLEET_INTEGER:
        return json_integer(integer);
    case CFLEET_NUMBER:
        return json_real(number);
    case CFLEET_STRING:
        return json_stringn(string, length);
    case CFLEET_ARRAY:
        return json_array();
    default:
        return json_object();
    }
}

bool cfleet_append(void *array, void *value) { return json_array_append_new(array, value) == 0; }
bool cfleet_set(void *object, const char *key, void *value) { return json_object_set_new(object, key, value) == 0; }
char *cfleet_text(const void *value) { return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS); }
