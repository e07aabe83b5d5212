package derive_test

// constrain adds constraints on nodes and on other pods.
func (dice dice) constrain(spec fields) {
	dice.maybe(4, spec, "nodeSelector", func() any { return fields{"zone": pick(dice, "a", "b", "")} })
	dice.maybe(3, spec, "tolerations", func() any {
		return some(dice, 2, func() any {
			return fields{"key": pick(dice, "k", ""), "operator": pick(dice, "Exists", "Equal", ""), "effect": pick(dice, "NoSchedule", ""), "tolerationSeconds": 300}
		})
	})
	dice.maybe(3, spec, "affinity", func() any {
		made := fields{}
		dice.maybe(2, made, "nodeAffinity", dice.nodeAffinity)
		dice.maybe(3, made, "podAffinity", dice.podAffinity)
		dice.maybe(3, made, "podAntiAffinity", dice.podAffinity)
		return made
	})
	dice.maybe(5, spec, "topologySpreadConstraints", func() any { return some(dice, 2, dice.spread) })
}

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func (dice dice) requirement() any {
	made := fields{"key": pick(dice, "zone", "app", "tier"), "operator": pick(dice, "In", "NotIn")}
	made["values"] = []string{"a", pick(dice, "b", "c")}
	if dice.in(3) {
		made = fields{"key": "zone", "operator": pick(dice, "Exists", "DoesNotExist")}
	}
	return made
}

func (dice dice) nodeTerm() any {
	made := fields{}
	dice.maybe(2, made, "matchExpressions", func() any { return some(dice, 2, dice.requirement) })
	dice.maybe(3, made, "matchFields", func() any {
		return []any{fields{"key": "metadata.name", "operator": "In", "values": []string{"n1"}}}
	})
	return made
}

func (dice dice) nodeAffinity() any {
	made := fields{}
	dice.maybe(2, made, required, func() any { return fields{"nodeSelectorTerms": some(dice, 2, dice.nodeTerm)} })
	dice.maybe(2, made, preferred, func() any {
		return some(dice, 2, func() any { return fields{"weight": 1 + dice.IntN(100), "preference": dice.nodeTerm()} })
	})
	return made
}

func (dice dice) labelSelector() any {
	made := fields{}
	dice.maybe(2, made, "matchLabels", func() any { return fields{"app": pick(dice, "a", "b")} })
	dice.maybe(2, made, "matchExpressions", func() any { return some(dice, 2, dice.requirement) })
	return made
}

func (dice dice) podTerm() any {
	made := fields{"topologyKey": pick(dice, "kubernetes.io/hostname", "zone")}
	dice.maybe(2, made, "labelSelector", dice.labelSelector)
	dice.maybe(3, made, "namespaces", func() any { return some(dice, 2, func() any { return pick(dice, "default", "team") }) })
	dice.maybe(3, made, "namespaceSelector", dice.labelSelector)
	return made
}

func (dice dice) podAffinity() any {
	made := fields{}
	dice.maybe(2, made, required, func() any { return some(dice, 2, dice.podTerm) })
	dice.maybe(2, made, preferred, func() any {
		return some(dice, 2, func() any { return fields{"weight": 1 + dice.IntN(100), "podAffinityTerm": dice.podTerm()} })
	})
	return made
}

func (dice dice) spread() any {
	made := fields{"maxSkew": 1 + dice.IntN(3), "topologyKey": "zone", "whenUnsatisfiable": pick(dice, "DoNotSchedule", "ScheduleAnyway")}
	dice.maybe(2, made, "labelSelector", dice.labelSelector)
	dice.maybe(3, made, "minDomains", func() any { return 1 + dice.IntN(3) })
	dice.maybe(3, made, "matchLabelKeys", func() any { return []string{"app"} })
	dice.maybe(3, made, "nodeAffinityPolicy", func() any { return pick(dice, "Honor", "Ignore") })
	dice.maybe(3, made, "nodeTaintsPolicy", func() any { return pick(dice, "Honor", "Ignore") })
	return made
}
