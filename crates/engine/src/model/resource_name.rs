//! Resource names: which schedulers use a resource, and in which unit. For example, `nvidia.com/gpu` is a scalar for
//! Volcano and Kubernetes.

use super::constraints::{is_name, is_subdomain};
use super::quantity::{Quantity, QuantityFormat, RangeError};

/// Kinds of resource name, as schedulers treat them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// `cpu`, in milli-cores.
    Cpu,
    /// `memory`, in bytes.
    Memory,
    /// `pods`, a plain number.
    Pods,
    /// `ephemeral-storage`, in thousandths of a byte.
    EphemeralStorage,
    /// Huge pages, attachable volumes, names of the `kubernetes.io/` family and extended resources such as
    /// `nvidia.com/gpu`.
    Scalar,
    /// Scalar with the prefix `count/`, such as `count/pods`. Kubernetes uses it; Volcano treats it as an object quota
    /// and drops it.
    CountQuota,
    /// Any other name, for example `gpu`. Schedulers ignore it.
    Uncounted,
}

impl ResourceKind {
    /// Kind of a resource name, by the rules of Kubernetes 1.36 and Volcano ed72c7c81.
    pub fn of(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "pods" => Self::Pods,
            "ephemeral-storage" => Self::EphemeralStorage,
            _ if !is_scalar(name) => Self::Uncounted,
            _ if name.starts_with("count/") => Self::CountQuota,
            _ => Self::Scalar,
        }
    }

    /// Unit of the engine's integers, which is Volcano's: whole bytes of memory, whole pods, thousandths of everything
    /// else.
    pub fn unit(self) -> AmountUnit {
        match self {
            Self::Memory | Self::Pods => AmountUnit::Whole,
            Self::Cpu | Self::EphemeralStorage | Self::Scalar | Self::CountQuota | Self::Uncounted => AmountUnit::Milli,
        }
    }

    /// Unit of kube-scheduler and Koordinator: thousandths of a core, whole units of everything else.
    pub fn kubernetes_unit(self) -> AmountUnit {
        match self {
            Self::Cpu => AmountUnit::Milli,
            Self::Memory | Self::Pods | Self::EphemeralStorage | Self::Scalar | Self::CountQuota | Self::Uncounted => {
                AmountUnit::Whole
            }
        }
    }

    /// True if Volcano schedules by resources of this kind.
    pub fn counted_by_volcano(self) -> bool {
        !matches!(self, Self::CountQuota | Self::Uncounted)
    }

    /// True if a name is one under which objects of the kind `ResourceQuota` count, and no resource for schedulers of
    /// Volcano's kind. Its controllers write such names into the minimum of every job.
    pub fn is_quota_name(name: &str) -> bool {
        ["count/", "requests.", "limits."]
            .iter()
            .any(|start| name.starts_with(start))
            && !Self::of(name).counted_by_volcano()
    }

    /// True if Kubernetes and Koordinator schedule by resources of this kind.
    pub fn counted_by_kubernetes(self) -> bool {
        self != Self::Uncounted
    }
}

/// Unit of an integer amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountUnit {
    /// Thousandths.
    Milli,
    /// Whole units, such as bytes or pods.
    Whole,
}

impl AmountUnit {
    /// Power of ten of one unit.
    pub fn exponent(self) -> i32 {
        match self {
            Self::Milli => -3,
            Self::Whole => 0,
        }
    }
}

/// Error: a quantity that cannot be an amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Quantity below 0.
    #[error("`{quantity}` of `{name}` is negative")]
    Negative {
        /// Name of the resource.
        name: String,
        /// Quantity, in Kubernetes' notation.
        quantity: String,
    },
    /// Quantity above the largest 64-bit amount.
    #[error("`{quantity}` of `{name}` is too large: the limit is {limit}")]
    TooLarge {
        /// Name of the resource.
        name: String,
        /// Quantity, in Kubernetes' notation.
        quantity: String,
        /// Largest amount, as a quantity.
        limit: String,
    },
}

impl AmountError {
    /// Error for an amount that does not fit in 64 bits.
    pub fn too_large(unit: AmountUnit, name: &str, amount: i128) -> Self {
        Self::TooLarge {
            name: name.to_owned(),
            quantity: format_in(unit, name, amount),
            limit: format_in(unit, name, i64::MAX.into()),
        }
    }
}

/// Amount of the resource in the engine's unit, rounded up.
///
/// # Errors
/// The quantity is negative or does not fit in 64 bits.
pub fn amount(name: &str, quantity: &Quantity) -> Result<i64, AmountError> {
    amount_in(ResourceKind::of(name).unit(), name, quantity)
}

/// Amount of the resource in the given unit, rounded up.
///
/// # Errors
/// The quantity is negative or does not fit in 64 bits.
pub fn amount_in(unit: AmountUnit, name: &str, quantity: &Quantity) -> Result<i64, AmountError> {
    if quantity.is_negative() {
        return Err(negative(name, quantity));
    }
    signed_amount_in(unit, name, quantity)
}

/// Amount of the resource in the engine's unit, rounded away from zero.
///
/// # Errors
/// The quantity does not fit in 64 bits, or is a negative fraction of a unit that Kubernetes rounds wrongly.
pub fn signed_amount(name: &str, quantity: &Quantity) -> Result<i64, AmountError> {
    signed_amount_in(ResourceKind::of(name).unit(), name, quantity)
}

fn negative(name: &str, quantity: &Quantity) -> AmountError {
    AmountError::Negative {
        name: name.to_owned(),
        quantity: quantity.to_string(),
    }
}

fn signed_amount_in(unit: AmountUnit, name: &str, quantity: &Quantity) -> Result<i64, AmountError> {
    let amount = match unit {
        AmountUnit::Milli => quantity.milli(),
        AmountUnit::Whole => quantity.value(),
    };
    amount.map_err(|error| match error {
        RangeError::NegativeFraction => negative(name, quantity),
        RangeError::OutOfRange => AmountError::TooLarge {
            name: name.to_owned(),
            quantity: quantity.to_string(),
            limit: format_in(unit, name, i64::MAX.into()),
        },
    })
}

/// Quantity text of an amount in the engine's unit: memory with binary suffixes, the rest with decimal ones.
pub fn format_amount(name: &str, amount: i128) -> String {
    format_in(ResourceKind::of(name).unit(), name, amount)
}

/// Quantity text of an amount in the given unit: memory with binary suffixes, the rest with decimal ones.
pub fn format_in(unit: AmountUnit, name: &str, amount: i128) -> String {
    let format = if name == "memory" {
        QuantityFormat::BinarySi
    } else {
        QuantityFormat::DecimalSi
    };
    Quantity::from_parts(amount, unit.exponent(), format).to_string()
}

fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || is_extended(name)
}

/// True for `domain/name` such that `requests.domain/name` is also a qualified name.
fn is_extended(name: &str) -> bool {
    const QUOTA_PREFIX: &str = "requests.";
    /// A DNS subdomain has at most 253 characters, and the prefix uses some of them.
    const DOMAIN_MAX: usize = 253 - QUOTA_PREFIX.len();
    let Some((domain, short)) = name.split_once('/') else {
        return false;
    };
    !name.starts_with(QUOTA_PREFIX) && domain.len() <= DOMAIN_MAX && is_subdomain(domain) && is_name(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn kinds_follow_the_naming_rules() {
        use ResourceKind::{CountQuota, Cpu, EphemeralStorage, Scalar, Uncounted};
        let long_domain = format!(
            "{}/x",
            ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(61)].join(".")
        );
        let short = format!("a.b/{}", "x".repeat(63));
        let cases = [
            ("cpu", Cpu),
            ("ephemeral-storage", EphemeralStorage),
            ("hugepages-2Mi", Scalar),
            ("hugepages-", Scalar),
            ("attachable-volumes-csi", Scalar),
            ("requests.kubernetes.io/x", Scalar),
            ("nvidia.com/gpu", Scalar),
            ("huawei.com/Ascend910", Scalar),
            (long_domain.as_str(), Scalar),
            (short.as_str(), Scalar),
            ("count/pods", CountQuota),
            ("storage", Uncounted),
            ("gpu", Uncounted),
            ("CPU", Uncounted),
            ("a/b/c", Uncounted),
            ("requests.nvidia.com/gpu", Uncounted),
            ("NVIDIA.com/gpu", Uncounted),
            ("nvidia..com/gpu", Uncounted),
            ("nvidia.com/", Uncounted),
            ("/gpu", Uncounted),
            ("nvidia.com/_x", Uncounted),
            ("nvidia.com/x_", Uncounted),
            ("", Uncounted),
        ];
        for (name, kind) in cases {
            assert_eq!(ResourceKind::of(name), kind, "{name}");
        }
        let too_long = format!(
            "{}/x",
            ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(62)].join(".")
        );
        assert_eq!(ResourceKind::of(&too_long), Uncounted);
        assert_eq!(ResourceKind::of(&format!("a.b/{}", "x".repeat(64))), Uncounted);
    }

    #[test]
    fn amounts_are_in_the_unit_of_the_name() {
        assert_eq!(amount("cpu", &quantity("1500u")), Ok(2));
        assert_eq!(amount("memory", &quantity("1500m")), Ok(2));
        assert_eq!(amount("pods", &quantity("110")), Ok(110));
        assert_eq!(amount("nvidia.com/gpu", &quantity("500m")), Ok(500));
        assert_eq!(amount("ephemeral-storage", &quantity("1Ki")), Ok(1_024_000));
        assert_eq!(format_amount("memory", 1 << 30), "1Gi");
        assert_eq!(format_amount("cpu", 1500), "1500m");
        assert_eq!(format_amount("pods", 110), "110");
    }

    #[test]
    fn amounts_out_of_range_name_the_limit() {
        let error = amount("cpu", &quantity("1E")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`1E` of `cpu` is too large: the limit is 9223372036854775807m"
        );
        let error = amount("memory", &quantity("8Ei")).unwrap_err();
        assert!(
            error.to_string().ends_with("the limit is 9223372036854775807"),
            "{error}"
        );
        let error = amount("memory", &quantity("18E")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`18E` of `memory` is too large: the limit is 9223372036854775807"
        );
        let error = amount("cpu", &quantity("-1")).unwrap_err();
        assert_eq!(error.to_string(), "`-1` of `cpu` is negative");
    }

    #[test]
    fn amounts_below_nothing_round_away_from_it() {
        let signed = |name: &str, text: &str| signed_amount(name, &quantity(text));
        assert_eq!(signed("cpu", "-1"), Ok(-1_000));
        assert_eq!(signed("cpu", "-1500u"), Ok(-2));
        assert_eq!(signed("memory", "-1Gi"), Ok(-1_073_741_824));
        assert_eq!(signed("pods", "3"), Ok(3));
        let error = signed("memory", "-1.0001Ki").unwrap_err();
        assert!(matches!(error, AmountError::Negative { .. }), "{error}");
        let error = signed("memory", "-18E").unwrap_err();
        assert!(matches!(error, AmountError::TooLarge { .. }), "{error}");
    }
}
