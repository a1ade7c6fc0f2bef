package repositorytest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTargetsAreThere: what documents, workflows and messages have someone call by make is in the Makefile, and that
// has no more targets than a person can know.
func TestTargetsAreThere(t *testing.T) {
	t.Parallel()

	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+)%?:.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}

	assert.LessOrEqual(t, len(targets), 20)

	call := regexp.MustCompile("(?:`|\\$ |run: )make (build-|[a-z-]+)")

	for _, name := range files(t, ".md", ".yaml", ".yml", ".go", ".service") {
		for _, match := range call.FindAllStringSubmatch(read(t, name), -1) {
			if match[1] == "room" { // on a disk, a message says
				continue
			}

			assert.True(t, targets[match[1]], "%s: make %s is no target of the Makefile", name, match[1])
		}
	}
}
