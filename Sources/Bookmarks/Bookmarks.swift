// Bookmarks
