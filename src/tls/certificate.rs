//! Content of a certificate: the names of its holder, such as a DNS name or a SPIFFE ID, and its validity.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// Maximum number of names that are read of one certificate.
const MAX_NAMES: usize = 64;
/// Longest name that is read, in bytes.
const NAME_BYTES: usize = 1_024;

/// Names of a caller's certificate (subject alternative names): DNS names and URIs, such as a SPIFFE ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames(Vec<Arc<str>>);

impl CertificateNames {
    /// Names of a certificate that was verified; names that are too long, or beyond the most, are left out.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return Self::default();
        };
        // URIs first: a SPIFFE ID says more about a caller than a name that others look up.
        let names = certificate.valid_uri_names().chain(certificate.valid_dns_names());
        let short = names.filter(|name| name.len() <= NAME_BYTES);
        Self(short.take(MAX_NAMES).map(Arc::from).collect())
    }

    /// The names, URIs before DNS names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }
}

/// End of a certificate's validity, in seconds since 1970; `None`: the certificate cannot be read.
pub(super) fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (0x30, outer, _) = der_value(certificate.as_ref())? else {
        return None;
    };
    let (0x30, body, _) = der_value(outer)? else {
        return None;
    };
    let (tag, _, mut rest) = der_value(body)?;
    // The version has a tag of its own and may be absent; then that was the serial number.
    if tag == 0xa0 {
        rest = der_value(rest)?.2;
    }
    // The algorithm of the signature, and the issuer.
    for _ in 0..2 {
        rest = der_value(rest)?.2;
    }
    let (0x30, validity, _) = der_value(rest)? else {
        return None;
    };
    let (_, _, rest) = der_value(validity)?;
    let (tag, time, _) = der_value(rest)?;
    unix_seconds(tag, std::str::from_utf8(time).ok()?)
}

/// Tag and content of the first value, and the bytes behind it.
fn der_value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        let length = digits.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Seconds since 1970 of a time as certificates have it: `YYMMDDhhmmssZ`, or with four digits of the year.
fn unix_seconds(tag: u8, text: &str) -> Option<u64> {
    let (year, rest) = if tag == 0x17 {
        let (year, rest) = text.split_at_checked(2)?;
        let year: u64 = year.parse().ok()?;
        (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
    } else {
        let (year, rest) = text.split_at_checked(4)?;
        (year.parse().ok()?, rest)
    };
    let digits = rest.strip_suffix('Z')?;
    let pair = |at: usize| digits.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day, hour, minute, second) = (pair(0)?, pair(2)?, pair(4)?, pair(6)?, pair(8)?);
    if year < 1_970 {
        return Some(0);
    }
    // Days by the calendar whose year begins with March, so that the leap day is the last one.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month.checked_sub(3)?)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day.checked_sub(1)?;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_are_read() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", 0),
            (0x17, "261126020207Z", 1_795_658_527),
            (0x17, "240229120000Z", 1_709_208_000),
            (0x18, "20500101000000Z", 2_524_608_000),
            (0x18, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(unix_seconds(tag, text), Some(seconds), "{text}");
        }
        for wrong in [
            "",
            "Z",
            "2611260202Z",
            "261126020207",
            "26112602020\u{e9}",
            "261100020207Z",
        ] {
            assert_eq!(unix_seconds(0x17, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_read_and_nonsense_is_not() {
        let mut params = rcgen::CertificateParams::new(vec!["pumice.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let uri = "spiffe://example/ns/a/sa/b".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(not_after(certificate.der()), Some(1_927_843_200));
        let names = CertificateNames::of(certificate.der());
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        assert_eq!(names, ["spiffe://example/ns/a/sa/b", "pumice.example"]);
        let bytes = certificate.der().as_ref();
        for end in 0..bytes.len().min(200) {
            let cut = CertificateDer::from(bytes[..end].to_vec());
            not_after(&cut);
            assert_eq!(CertificateNames::of(&cut), CertificateNames::default());
        }
        for at in 0..bytes.len() {
            let mut other = bytes.to_vec();
            other[at] ^= 0xff;
            not_after(&CertificateDer::from(other));
        }
    }
}
