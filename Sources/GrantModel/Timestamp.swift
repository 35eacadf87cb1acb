import Glibc

/// Formats times by ISO 8601: in UTC for programs, in local time for people.
package enum Timestamp {
    private static let secondsOfDay: Int64 = 86_400

    /// `2026-11-21T13:04:05Z`, with milliseconds unless they are 0.
    package static func text(_ instant: Instant) -> String {
        let (seconds, rest) = divided(instant.nanoseconds, 1_000_000_000)
        let (days, second) = divided(seconds, secondsOfDay)
        let date = civil(days)
        let milliseconds = rest / 1_000_000
        let fraction = milliseconds == 0 ? "" : "." + padded(milliseconds, 3)
        return
            "\(padded(date.year, 4))-\(padded(date.month, 2))-\(padded(date.day, 2))"
            + "T\(padded(second / 3600, 2)):\(padded(second / 60 % 60, 2)):\(padded(second % 60, 2))\(fraction)Z"
    }

    /// `2026-11-21 14:04:05`, in local time. `--since` and `--expires` accept it.
    package static func local(_ instant: Instant) -> String {
        let (date, time, _) = localParts(instant)
        return date + " " + time
    }

    /// `2026-11-21T14:04:05.120+01:00`: local time with its offset.
    package static func localWithOffset(_ instant: Instant) -> String {
        let (date, time, offset) = localParts(instant)
        let milliseconds = divided(instant.nanoseconds, 1_000_000_000).1 / 1_000_000
        let minutes = abs(offset) / 60
        return "\(date)T\(time).\(padded(milliseconds, 3))\(offset < 0 ? "-" : "+")\(padded(minutes / 60, 2)):\(padded(minutes % 60, 2))"
    }

    private static func localParts(_ instant: Instant) -> (date: String, time: String, offset: Int64) {
        var seconds = time_t(truncatingIfNeeded: divided(instant.nanoseconds, 1_000_000_000).0)
        var fields = tm()
        localtime_r(&seconds, &fields)
        let two = { (value: Int32) in padded(Int64(truncatingIfNeeded: value), 2) }
        let year = padded(Int64(truncatingIfNeeded: fields.tm_year) + 1900, 4)
        return (
            "\(year)-\(two(fields.tm_mon + 1))-\(two(fields.tm_mday))",
            "\(two(fields.tm_hour)):\(two(fields.tm_min)):\(two(fields.tm_sec))",
            Int64(truncatingIfNeeded: fields.tm_gmtoff)
        )
    }

    /// Returns the days since 1970-01-01 of a date in the Gregorian calendar, or nil for an invalid
    /// date.
    package static func days(year: Int64, month: Int64, day: Int64) -> Int64? {
        guard (1...12).contains(month), day >= 1 else { return nil }
        let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        let lengths: [Int64] = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        guard day <= lengths[Int(truncatingIfNeeded: month - 1)] else { return nil }
        // Here years begin in March, so that the leap day comes last.
        let shifted = month <= 2 ? year - 1 : year
        let (era, yearOfEra) = divided(shifted, 400)
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    private static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let (era, dayOfEra) = divided(days + 719_468, 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shifted = (5 * dayOfYear + 2) / 153
        let month = shifted < 10 ? shifted + 3 : shifted - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shifted + 2) / 5 + 1)
    }

    /// Rounds down, so that the remainder is never negative.
    private static func divided(_ value: Int64, _ by: Int64) -> (Int64, Int64) {
        let quotient = value >= 0 ? value / by : -((-value + by - 1) / by)
        return (quotient, value - quotient * by)
    }

    private static func padded(_ value: Int64, _ count: Int) -> String {
        let digits = String(value)
        return String(repeating: "0", count: max(0, count - digits.count)) + digits
    }
}
