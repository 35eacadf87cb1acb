import Glibc
import GrantModel

/// WHEN: `90s`, `2h`, `7d`, or an ISO 8601 time.
package enum Expiry {
    private static let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800]
    /// The last second that 64 bits of nanoseconds can represent, in 2262.
    private static let lastSecond = Int64.max / 1_000_000_000 - 1

    /// Throws `.usage` if it is invalid, not after `now`, or beyond 2262.
    package static func parse(_ text: String, now: Instant) throws(GrantError) -> Instant {
        guard let instant = duration(text, now) ?? time(text) else {
            throw GrantError(.usage, "invalid time “\(text)”", advice: "use 90s, 2h, 7d or 2030-01-31T12:00:00Z")
        }
        guard let instant else { throw GrantError(.usage, "the expiry “\(text)” is too far away", cause: "it is after the year 2262") }
        if instant <= now { throw GrantError(.usage, "the expiry “\(text)” is not in the future") }
        return instant
    }

    /// Parses a time span: `90s`, `2h`, `7d`. Throws `.usage` if it is invalid, empty, or ends after 2262.
    package static func after(_ text: String, now: Instant) throws(GrantError) -> Instant {
        guard let instant = duration(text, now), let instant, instant > now else {
            throw GrantError(.usage, "invalid time span “\(text)”", advice: "use 90s, 30m, 2h or 7d")
        }
        return instant
    }

    /// Parses a time that may have passed, or a time span before now: `1h`. Throws `.usage` if it
    /// is invalid.
    package static func parsePast(_ text: String, now: Instant) throws(GrantError) -> Instant {
        if let later = duration(text, now), let later {
            return Instant(nanoseconds: now.nanoseconds - (later.nanoseconds - now.nanoseconds))
        }
        guard let instant = time(text), let instant else {
            throw GrantError(.usage, "invalid time “\(text)”", advice: "use 30m, 1h, 7d or 2030-01-31T12:00:00Z")
        }
        return instant
    }

    /// Parses seconds, at most a day: `30s`, `2m`, `30`, `0.5`. Throws `.usage` for anything else.
    package static func seconds(_ text: String, for option: String) throws(GrantError) -> Double {
        let origin = Instant(nanoseconds: 0)
        let seconds = duration(text, origin).map { $0?.seconds(since: origin) ?? .infinity } ?? Double(text)
        guard let seconds, seconds >= 0, seconds <= 86_400 else {
            throw GrantError(
                .usage, "invalid duration “\(text)” for --\(option)", advice: "use 30s, 2m, or seconds, up to a day")
        }
        return seconds
    }

    /// nil: not a duration. `.some(nil)`: too long.
    private static func duration(_ text: String, _ now: Instant) -> Instant?? {
        guard let unit = text.last.flatMap({ units[$0] }) else { return nil }
        let digits = text.dropLast()
        guard !digits.isEmpty, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        guard let count = Int64(digits) else { return .some(nil) }
        let (seconds, overflow) = count.multipliedReportingOverflow(by: unit)
        guard !overflow, seconds < lastSecond - now.nanoseconds / 1_000_000_000 else { return .some(nil) }
        return Instant(nanoseconds: now.nanoseconds + seconds * 1_000_000_000)
    }

    /// `2030-01-31`, `2030-01-31T12:00`, `2030-01-31T12:00:00.5Z`, `… +02:00`. Local time without a zone.
    private static func time(_ text: String) -> Instant?? {
        var scanner = Scanner(text)
        guard let year = scanner.digits(4), scanner.take("-"), let month = scanner.digits(2), scanner.take("-"),
            let day = scanner.digits(2), let days = Timestamp.days(year: year, month: month, day: day)
        else { return nil }
        var (hour, minute, second, nanoseconds): (Int64, Int64, Int64, Int64) = (0, 0, 0, 0)
        if scanner.take("T") || scanner.take("t") || scanner.take(" ") {
            guard let hours = scanner.digits(2), scanner.take(":"), let minutes = scanner.digits(2) else { return nil }
            (hour, minute) = (hours, minutes)
            if scanner.take(":") {
                guard let seconds = scanner.digits(2) else { return nil }
                second = seconds
                if scanner.take(".") || scanner.take(",") {
                    guard let fraction = scanner.fraction() else { return nil }
                    nanoseconds = fraction
                }
            }
        }
        guard hour < 24, minute < 60, second < 61 else { return nil }
        guard let offset = scanner.zone(days: days, year: year, month: month, day: day, hour: hour, minute: minute, second: second),
            scanner.isAtEnd
        else { return nil }
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset
        guard seconds < lastSecond else { return .some(nil) }
        guard seconds > -lastSecond else { return Instant(seconds: 0) }
        return Instant(nanoseconds: seconds * 1_000_000_000 + nanoseconds)
    }
}

private struct Scanner {
    private var rest: Substring

    init(_ text: String) { rest = text[...] }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func take(_ character: Character) -> Bool {
        guard rest.first == character else { return false }
        rest.removeFirst()
        return true
    }

    mutating func digits(_ count: Int) -> Int64? {
        let digits = rest.prefix(count)
        guard digits.count == count, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        rest = rest.dropFirst(count)
        return Int64(digits)
    }

    /// Returns nanoseconds. Ignores digits after the ninth.
    mutating func fraction() -> Int64? {
        let digits = rest.prefix { ("0"..."9").contains($0) }
        guard !digits.isEmpty else { return nil }
        rest = rest.dropFirst(digits.count)
        return Int64(digits.prefix(9) + String(repeating: "0", count: max(0, 9 - digits.count)))
    }

    /// Returns the seconds of a time after parsing its zone.
    mutating func zone(days: Int64, year: Int64, month: Int64, day: Int64, hour: Int64, minute: Int64, second: Int64) -> Int64? {
        if take("Z") || take("z") { return 0 }
        let isEast = rest.first == "+"
        if take("+") || take("-") {
            guard let hours = digits(2) else { return nil }
            _ = take(":")
            let minutes = isAtEnd ? 0 : digits(2)
            guard let minutes, hours < 24, minutes < 60 else { return nil }
            return (isEast ? 1 : -1) * (hours * 3600 + minutes * 60)
        }
        var local = tm()
        (local.tm_year, local.tm_mon, local.tm_mday) = (Int32(year - 1900), Int32(month - 1), Int32(day))
        (local.tm_hour, local.tm_min, local.tm_sec, local.tm_isdst) = (Int32(hour), Int32(minute), Int32(second), -1)
        let seconds = Int64(mktime(&local))
        return days * 86_400 + hour * 3600 + minute * 60 + second - seconds
    }
}
