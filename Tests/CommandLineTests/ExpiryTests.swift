import GrantModel
import Testing

@testable import GrantCommandSupport

private let now = Instant(seconds: 1_800_000_000)

private func seconds(_ text: String) throws(GrantError) -> Int64 { try Expiry.parse(text, now: now).nanoseconds / 1_000_000_000 }

@Suite struct ExpiryTests {
    @Test("The duration of an expiry counts from now")
    func durationsCountFromNow() throws {
        for (text, length) in [("90s", 90), ("2h", 7200), ("7d", 604_800), ("5m", 300), ("1w", 604_800)] as [(String, Int64)] {
            #expect(try seconds(text) == 1_800_000_000 + length)
        }
    }

    @Test("An expiry is read from an ISO 8601 time")
    func timesAreRead() throws {
        #expect(try seconds("2030-01-31T12:00:00Z") == 1_896_091_200)
        #expect(try seconds("2030-01-31T14:00+02:00") == 1_896_091_200)
        #expect(try seconds("2030-01-31T07:30:00-0430") == 1_896_091_200)
        #expect(try seconds("2030-01-31 12:00:00Z") == 1_896_091_200)
        #expect(try Expiry.parse("2030-01-31T12:00:00.25Z", now: now).nanoseconds == 1_896_091_200_250_000_000)
        #expect(try seconds("2032-02-29T00:00:00Z") == 1_961_625_600)
    }

    @Test("An expiry without a time zone is in local time")
    func withoutAZoneItIsLocalTime() throws {
        #expect(abs(try seconds("2030-01-31T12:00") - 1_896_091_200) <= 14 * 3600)
        #expect(abs(try seconds("2030-01-31") - 1_896_048_000) <= 14 * 3600)
    }

    @Test(
        "An invalid expiry is refused with status 2",
        arguments: [
            "", "s", "-5s", "5", "5x", "1.5h", "0s", "tomorrow", "2020-01-01", "2030-02-30", "2030-13-01", "2030-1-1", "2030-01-31T25:00Z",
            "2030-01-31T12:00:00Zx", "2030-01-31T12", "99999999999999999999s", "9999999999999d", "9999-01-01T00:00:00Z", "٣s",
            "0000-01-01T00:00:00Z",
        ])
    func whatIsNoExpiryIsRefused(_ text: String) {
        let error = #expect(throws: GrantError.self) { try seconds(text) }
        #expect(error?.exitStatus == 2)
    }

    @Test("A printed expiry is read back")
    func timesAreWrittenAsTheyAreRead() throws {
        #expect(Timestamp.text(Instant(seconds: 0)) == "1970-01-01T00:00:00Z")
        #expect(Timestamp.text(Instant(nanoseconds: -1_000_000)) == "1969-12-31T23:59:59.999Z")
        #expect(Timestamp.text(Instant(seconds: 951_782_400)) == "2000-02-29T00:00:00Z")
        for days: Int64 in stride(from: 30_000, to: 100_000, by: 37) {
            let instant = Instant(seconds: days * 86_400 + days)
            #expect(try Expiry.parse(Timestamp.text(instant), now: now) == instant)
        }
    }
}
