package repositorytest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRealTestsAreInCI: `.ci/run` names the tests of real Kubernetes in groups; each test is in one of them.
func TestRealTestsAreInCI(t *testing.T) {
	t.Parallel()

	var groups []*regexp.Regexp

	commands := regexp.MustCompile(`(?m)^  \d+='([^']+)'`)
	for _, match := range commands.FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		groups = append(groups, regexp.MustCompile("^("+match[1]+")"))
	}

	require.NotEmpty(t, groups)

	declarations := regexp.MustCompile(`(?m)^func (TestReal[A-Z]\w*)`)
	tests := 0

	for _, file := range files(t, "_test.go") {
		if !strings.HasPrefix(file, "lab/engine/") && !strings.HasPrefix(file, "lab/machine/") {
			continue
		}

		for _, match := range declarations.FindAllStringSubmatch(read(t, file), -1) {
			tests++
			found := 0

			for _, group := range groups {
				if group.MatchString(match[1]) {
					found++
				}
			}

			assert.Equal(t, 1, found, "%s: groups of .ci/run with %s", file, match[1])
		}
	}

	assert.NotZero(t, tests)
}
