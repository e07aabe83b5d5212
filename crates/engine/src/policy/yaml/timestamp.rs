//! Recognizer of texts that the tag `!!timestamp` accepts; timestamps stay texts.

/// Reader of a timestamp from left to right.
struct TimestampReader<'t> {
    rest: &'t str,
}

/// True for a date (`2026-1-2`), alone or with a time: after `T` or `t` with a zone, after blanks without one.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut reader = TimestampReader { rest: text };
    reader.timestamp().is_some() && reader.rest.is_empty()
}

impl TimestampReader<'_> {
    fn timestamp(&mut self) -> Option<()> {
        let (year, rest) = self.rest.split_at_checked(4)?;
        if !year.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        let year: u32 = year.parse().ok()?;
        self.literal("-")?;
        let month = self.number(1, 12)?;
        self.literal("-")?;
        self.number(1, days(year, month))?;
        if self.rest.is_empty() {
            return Some(());
        }
        if self.literal("T").or_else(|| self.literal("t")).is_some() {
            self.time()?;
            return self.zone();
        }
        self.literal(" ")?;
        self.rest = self.rest.trim_start_matches(' ');
        self.time()
    }

    fn time(&mut self) -> Option<()> {
        self.number(0, 23)?;
        self.literal(":")?;
        self.number(0, 59)?;
        self.literal(":")?;
        self.number(0, 59)?;
        let mut rest = self.rest.chars();
        if matches!(rest.next(), Some('.' | ',')) && rest.next().is_some_and(|c| c.is_ascii_digit()) {
            self.rest = self.rest.get(1..)?.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        Some(())
    }

    fn zone(&mut self) -> Option<()> {
        if self.literal("Z").is_some() {
            return Some(());
        }
        self.literal("+").or_else(|| self.literal("-"))?;
        self.two_digits(24)?;
        self.literal(":")?;
        self.two_digits(60)
    }

    fn literal(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Reads one or two digits.
    fn number(&mut self, least: u32, most: u32) -> Option<u32> {
        let width = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at_checked(width)?;
        let number = digits.parse().ok()?;
        self.rest = rest;
        (least..=most).contains(&number).then_some(number)
    }

    fn two_digits(&mut self, most: u32) -> Option<()> {
        if !self.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) {
            return None;
        }
        self.number(0, most).map(|_| ())
    }
}

fn days(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
