package problem_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/problem"
)

func TestList(t *testing.T) {
	t.Parallel()

	var found problem.List

	found.Add("hosts[10].name", "<a>", "is not a name; use %s", "pve10")
	found.Warn("hosts[2]", nil, "is offline")
	found.Add("hosts[2].number", 7, "is taken")
	found.Add("", nil, "nothing answers")
	found.Add("hosts[2].number", 7, "is taken")

	assert.Equal(t, []string{
		"nothing answers", "hosts[2]: is offline", "hosts[2].number: 7 is taken", `hosts[10].name: "<a>" is not a name; use pve10`,
	}, found.Sorted().Lines())
	assert.Equal(t, []string{"hosts[2]: is offline"}, found.Warnings().Lines())
	assert.Len(t, found.Errors(), 4)
	assert.Equal(t, strings.Join(found.Lines(), "\n"), found.Error())

	pool := problem.Problem{Path: "clusters[0].workers[0].resourcePool", Message: "is not a resource pool"}
	onPVE1, onPVE2 := pool, pool
	onPVE1.Heading, onPVE2.Heading = "pve1", "pve2"
	assert.Equal(t, []string{pool.String()}, problem.List{onPVE1, onPVE2}.Lines(), "one problem of two hosts")

	assert.True(t, found.Has("hosts[2]"))
	assert.False(t, found.Has("hosts[1]"), "hosts[10] is not below it")
}

// TestJSONNamesAreStable: users of talos-proxmox status --output json depend on them.
func TestJSONNamesAreStable(t *testing.T) {
	t.Parallel()

	text, err := json.Marshal(problem.List{
		{Path: "etcd", Message: "alarm NOSPACE", Severity: problem.Warning, Heading: "pve1"},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `[{"about": "etcd", "heading": "pve1", "problem": "alarm NOSPACE"}]`, string(text))
}
