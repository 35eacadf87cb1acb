#pragma once
// Macros that Swift does not import, and the global screen, which it would not let be used, as functions.
#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <stdio.h>
#include <wchar.h>

// <wchar.h> has it for _XOPEN_SOURCE alone, which Swift's module of the C library is built without.
extern int wcwidth(wchar_t);
// <term.h> would define hundreds of macros with everyday names.
extern char *tigetstr(const char *);

static inline int cncurses_width(uint32_t scalar) { return wcwidth((wchar_t)scalar); }

/// Sets up the terminal of these streams and shows nothing yet: 0, or -1 when its type is not known.
static inline int cncurses_open(FILE *out, FILE *in) {
    SCREEN *screen = newterm(NULL, out, in);
    if (screen == NULL)
        return -1;
    set_term(screen);
    raw();
    noecho();
    nonl();
    set_escdelay(25);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    return 0;
}

/// Whether the cursor can be put anywhere: without that there are no pages, only lines.
static inline int cncurses_has_pages(void) {
    const char *position = tigetstr("cup");
    return position != NULL && position != (char *)-1;
}

/// The next key that has come: 0 for a character, 1 for a key of `curses.h`, -1 for none.
static inline int cncurses_key(uint32_t *key) {
    wint_t code = 0;
    int kind = wget_wch(stdscr, &code);
    *key = code;
    return kind == OK ? 0 : kind == KEY_CODE_YES ? 1 : -1;
}

static inline int cncurses_rows(void) { return getmaxy(stdscr); }
static inline int cncurses_columns(void) { return getmaxx(stdscr); }

static inline void cncurses_begin_row(int row) {
    wmove(stdscr, row, 0);
    wattrset(stdscr, A_NORMAL);
}

enum { CNCURSES_BOLD = 1, CNCURSES_DIM = 2, CNCURSES_REVERSE = 4, CNCURSES_UNDERLINE = 8 };

/// `pair` 0 is the terminal's own colour.
static inline void cncurses_add(const char *text, int count, int style, int pair) {
    attr_t attributes = A_NORMAL;
    if (style & CNCURSES_BOLD)
        attributes |= A_BOLD;
    if (style & CNCURSES_DIM)
        attributes |= A_DIM;
    if (style & CNCURSES_REVERSE)
        attributes |= A_REVERSE;
    if (style & CNCURSES_UNDERLINE)
        attributes |= A_UNDERLINE;
    wattrset(stdscr, (int)(attributes | COLOR_PAIR(pair)));
    waddnstr(stdscr, text, count);
}

static inline void cncurses_end_row(void) {
    wattrset(stdscr, A_NORMAL);
    wclrtoeol(stdscr);
}

/// Sends the differences from the terminal's present contents. `row` below 0: no cursor.
static inline void cncurses_show(int row, int column) {
    curs_set(row < 0 ? 0 : 1);
    if (row >= 0)
        wmove(stdscr, row, column);
    wrefresh(stdscr);
}

/// Adapts to the present size of the terminal. Everything is sent again.
static inline void cncurses_resize(int rows, int columns) {
    resizeterm(rows, columns);
    clearok(stdscr, TRUE);
}
