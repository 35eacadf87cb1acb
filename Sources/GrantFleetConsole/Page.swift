import GrantWeb

/// The page, which is the same for every user and contains no data: it requests the data that it
/// shows.
enum Page {
    static func reply(_ path: String) -> WebReply? {
        switch path {
        case "/": WebReply(status: 200, type: "text/html; charset=utf-8", body: PackageResources.index_html)
        case "/console.css": WebReply(status: 200, type: "text/css; charset=utf-8", body: PackageResources.console_css)
        case "/console.js": WebReply(status: 200, type: "text/javascript; charset=utf-8", body: PackageResources.console_js)
        case "/icon.svg": WebReply(status: 200, type: "image/svg+xml", body: PackageResources.icon_svg)
        default: nil
        }
    }
}
