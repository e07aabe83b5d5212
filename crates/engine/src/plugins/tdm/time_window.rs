//! Windows of the day in which a revocable zone is open.

use crate::plugin::DecisionTime;

const SECONDS_PER_DAY: i64 = 86_400;

/// Window of the day: from one minute to another, both included to the second. An end that is not behind the start is on
/// the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeWindow {
    /// Seconds after midnight.
    start: i64,
    /// Seconds after the same midnight.
    end: i64,
}

impl TimeWindow {
    /// Reads a window such as `22:00-6:30`: two times of the day around one dash.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (start, end) = text.trim().split_once('-')?;
        let (start, end) = (parse_time(start)?, parse_time(end)?);
        let end = if end > start { end } else { end + SECONDS_PER_DAY };
        Some(Self { start, end })
    }

    /// True if the window that begins today includes a time, or with `from_yesterday` the one that began yesterday.
    pub(super) fn includes(self, now: DecisionTime, from_yesterday: bool) -> bool {
        let second = now.local_seconds().rem_euclid(SECONDS_PER_DAY);
        let has = |second: i64| (self.start..=self.end).contains(&second);
        has(second) || from_yesterday && has(second + SECONDS_PER_DAY)
    }
}

/// Seconds after midnight of a time such as `9:05`: an hour of one or two digits, and a minute of two.
fn parse_time(text: &str) -> Option<i64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, most: i64| {
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: i64 = digits.parse().ok().filter(|_| all_digits)?;
        (number <= most).then_some(number)
    };
    if hour.len() > 2 || minute.len() != 2 {
        return None;
    }
    Some(number(hour, 23)? * 3600 + number(minute, 59)? * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> DecisionTime {
        parse_time(time).unwrap().into()
    }

    #[test]
    fn a_window_has_two_times_around_one_dash() {
        for text in ["10:00-14:00", "  9:00-14:00 ", "00:00-00:00", "22:00-06:00"] {
            assert!(TimeWindow::parse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "10:00",
            "10:00-11:00-14:00",
            "10:00 - 14:00",
            "09:0-14:00",
            "00:00-24:00",
            "25:00-26:00",
            "10:00:00-14:00:00",
            "a-b",
            "+9:00-10:00",
            ":00-10:00",
            "10:60-11:00",
        ] {
            assert_eq!(TimeWindow::parse(text), None, "{text}");
        }
    }

    #[test]
    fn both_ends_are_included_to_the_second() {
        let window = TimeWindow::parse("10:00-12:00").unwrap();
        let open = |seconds: i64| window.includes(seconds.into(), false);
        let (start, end) = (36_000, 43_200);
        assert_eq!([start - 1, start, end, end + 1].map(open), [false, true, true, false]);
        let whole = TimeWindow::parse("12:00-12:00").unwrap();
        assert!(whole.includes(at("13:00"), false) && !whole.includes(at("11:00"), false));
        assert!(whole.includes(at("11:00"), true));
    }

    #[test]
    fn a_window_over_midnight_is_closed_in_the_morning_unless_yesterday_counts() {
        let window = TimeWindow::parse("22:00-06:00").unwrap();
        let open = |time, from_yesterday| window.includes(at(time), from_yesterday);
        assert!(open("23:00", false) && !open("03:00", false));
        assert!(open("23:00", true) && open("03:00", true) && !open("07:00", true));
        let day = TimeWindow::parse("10:00-14:00").unwrap();
        assert!(!day.includes(at("09:59"), true));
    }

    #[test]
    fn the_day_is_that_of_the_time_zone() {
        let window = TimeWindow::parse("10:00-14:00").unwrap();
        let in_tokyo = |seconds| DecisionTime {
            seconds,
            utc_offset: 9 * 3600,
        };
        assert!(window.includes(in_tokyo(3 * 3600), false) && !window.includes(in_tokyo(12 * 3600), false));
    }
}
