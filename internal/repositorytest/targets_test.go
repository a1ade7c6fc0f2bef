package repositorytest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMakeTargets: the targets in documents, workflows and messages exist, and the Makefile has few targets.
func TestMakeTargets(t *testing.T) {
	t.Parallel()

	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+)%?:.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}

	assert.LessOrEqual(t, len(targets), 20)

	call := regexp.MustCompile("(?:`|\\$ |run: )make (build-|[a-z-]+)")

	for _, name := range files(t, ".md", ".yaml", ".yml", ".go", ".service") {
		for _, match := range call.FindAllStringSubmatch(read(t, name), -1) {
			if match[1] == "room" { // "make room" on a disk
				continue
			}

			assert.True(t, targets[match[1]], "%s: the Makefile has no target %s", name, match[1])
		}
	}
}
