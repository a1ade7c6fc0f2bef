package rules

import "testing"

func TestHostCapacity(t *testing.T) {
	t.Parallel()

	small := testSettings
	small.Hosts = map[string]capacity{"pve1": {Cores: 1, MemoryMiB: 8192}}
	a, b, c := worker("a", "pve1", 3000), worker("b", "pve1", 3001), worker("c", "pve1", 3002)
	hosts := func(v any) options { return options{"hosts": map[string]any{"pve1": v}} }

	runCases(t, "host-capacity", map[string]policyCase{
		"nothing is set":     {plan: []resource{a, b, c}},
		"two fit":            {settings: &small, plan: []resource{a, b}},
		"the third does not": {settings: &small, plan: []resource{a, b, c}, want: []string{"c: with it host pve1 has 12288 MiB of memory planned, and 8192 MiB for guests (times 1): place it on another host, make machines smaller, or set more", "6 of cores planned, and 1 for guests (times 4)"}[:1], options: options{"coreRatio": 6.0}},
		"cores by their ratio": {
			settings: &small,
			options:  options{"memoryRatio": 9.0, "coreRatio": 3.0},
			plan:     []resource{a, b},
			want:     []string{"b: with it host pve1 has 4 of cores planned, and 1 for guests (times 3)"},
		},
		"sockets multiply": {
			settings: &small,
			options:  options{"coreRatio": 3.0},
			plan:     []resource{a.with(props{"cpu": props{"cores": 2, "sockets": 2}})},
			want:     []string{"4 of cores"},
		},
		"memory may be planned twice": {
			settings: &small, options: options{"memoryRatio": 2.0, "coreRatio": 9.0}, plan: []resource{a, b, c},
		},
		"sizes in the policy's options": {
			options: hosts(map[string]any{"memoryMiB": 4000.0}),
			plan:    []resource{a},
			want:    []string{"4096 MiB of memory planned, and 4000 MiB"},
		},
		"they override the stack's": {
			settings: &small, options: hosts(map[string]any{"memoryMiB": 64000.0, "cores": 64.0}), plan: []resource{a, b, c},
		},
		"a full datastore": {
			options: hosts(map[string]any{"storageGiB": map[string]any{"local-lvm": 30.0}}),
			plan:    []resource{a, b},
			want:    []string{"b: with it host pve1 has 40 GiB of datastore local-lvm planned, and 30 GiB for guests"},
		},
		"thin provisioning": {
			options: options{
				"storageRatio": 2.0,
				"hosts":        map[string]any{"pve1": map[string]any{"storageGiB": map[string]any{"local-lvm": 30.0}}},
			},
			plan: []resource{a, b},
		},
		"other hosts count nothing":           {settings: &small, plan: []resource{a, b, worker("c", "pve2", 3002)}},
		"templates count nothing":             {settings: &small, plan: []resource{a, b, c.with(props{"template": true})}},
		"a machine checked twice counts once": {settings: &small, plan: []resource{a, a, a, b}},
		"a host not known yet":                {settings: &small, plan: []resource{a, b, c.with(props{"nodeName": unknown})}},
		"a hostile configuration":             {options: hosts("big"), plan: []resource{a}},
		"a secret size is not shown": {
			settings: &small,
			plan:     []resource{a.with(props{"memory": props{"dedicated": secret{99999}}})},
			want:     []string{"[secret] MiB of memory planned"},
		},
	})
}
