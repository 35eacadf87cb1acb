// Compiled in, instead of linked as a library that every command would load and two need.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#include <toml++/toml.h>

#include "ctoml.h"

#include <cstring>
#include <sstream>

struct ctoml_document {
    toml::table table;
};

namespace {

const toml::node &value(const ctoml_node *node) { return *reinterpret_cast<const toml::node *>(node); }
const ctoml_node *handle(const toml::node *node) { return reinterpret_cast<const ctoml_node *>(node); }

toml::table::const_iterator entry(const ctoml_node *node, size_t index) {
    auto place = value(node).as_table()->cbegin();
    while (index-- > 0)
        ++place;
    return place;
}

} // namespace

ctoml_document *ctoml_read(const char *bytes, size_t count, ctoml_failure *failure) {
    toml::parse_result result = toml::parse(std::string_view(bytes, count));
    if (result)
        return new ctoml_document{std::move(result).table()};
    const std::string_view text = result.error().description();
    const size_t length = text.size() < sizeof failure->text ? text.size() : sizeof failure->text - 1;
    memcpy(failure->text, text.data(), length);
    failure->text[length] = 0;
    failure->line = result.error().source().begin.line;
    return nullptr;
}

void ctoml_end(ctoml_document *document) { delete document; }

const ctoml_node *ctoml_root(const ctoml_document *document) { return handle(&document->table); }

ctoml_kind ctoml_kind_of(const ctoml_node *node) {
    switch (value(node).type()) {
    case toml::node_type::table: return ctoml_table;
    case toml::node_type::array: return ctoml_array;
    case toml::node_type::string: return ctoml_string;
    case toml::node_type::integer: return ctoml_integer;
    case toml::node_type::boolean: return ctoml_boolean;
    case toml::node_type::date:
    case toml::node_type::date_time: return ctoml_moment;
    default: return ctoml_other;
    }
}

uint32_t ctoml_line(const ctoml_node *node) { return value(node).source().begin.line; }

size_t ctoml_count(const ctoml_node *node) {
    if (const auto *table = value(node).as_table())
        return table->size();
    const auto *array = value(node).as_array();
    return array ? array->size() : 0;
}

const ctoml_node *ctoml_item(const ctoml_node *node, size_t index) {
    if (value(node).is_table())
        return handle(&entry(node, index)->second);
    return handle(value(node).as_array()->get(index));
}

const char *ctoml_key(const ctoml_node *node, size_t index, size_t *count) {
    const std::string_view key = entry(node, index)->first;
    *count = key.size();
    return key.data();
}

const char *ctoml_string_of(const ctoml_node *node, size_t *count) {
    const std::string &text = value(node).as_string()->get();
    *count = text.size();
    return text.data();
}

bool ctoml_boolean_of(const ctoml_node *node) { return value(node).as_boolean()->get(); }

bool ctoml_time_of(const ctoml_node *node, ctoml_time *time) {
    *time = {};
    toml::date date;
    if (const auto *only = value(node).as_date()) {
        date = only->get();
    } else if (const auto *both = value(node).as_date_time()) {
        const toml::date_time &moment = both->get();
        date = moment.date;
        time->hour = moment.time.hour;
        time->minute = moment.time.minute;
        time->second = moment.time.second;
        time->nanosecond = moment.time.nanosecond;
        time->has_offset = moment.offset.has_value();
        if (moment.offset)
            time->offset_minutes = moment.offset->minutes;
    } else {
        return false;
    }
    time->year = date.year;
    time->month = date.month;
    time->day = date.day;
    return true;
}

size_t ctoml_quote(const char *bytes, size_t count, char *out, size_t room) {
    const toml::value<std::string> text{std::string(bytes, count)};
    std::ostringstream stream;
    stream << toml::toml_formatter{text, toml::format_flags::allow_unicode_strings};
    const std::string quoted = stream.str();
    memcpy(out, quoted.data(), quoted.size() < room ? quoted.size() : room);
    return quoted.size();
}
