package repositorytest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// otherPossessive matches the form with a second s of names that end with that sound.
var otherPossessive = regexp.MustCompile(`\b(?:Proxmox|Talos|Kubernetes|Linux|NixOS|Flux)['’]s\b`)

// TestPossessives: names that end with the sound of s have one form of the possessive, with an apostrophe alone.
func TestPossessives(t *testing.T) {
	t.Parallel()

	for _, path := range files(t, ".go", ".md", ".sh", ".yaml", ".html", "Makefile") {
		if path == "components/scripts/identity.sh" { // a new text of it would run on all hosts again
			continue
		}

		for _, found := range otherPossessive.FindAllString(read(t, path), -1) {
			assert.Fail(t, path+": "+found+" is written without its last s")
		}
	}
}
