// Package recording records the answers of real Proxmox VE APIs to a list of calls, and compares them with those of the
// lab.
package recording

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
)

//go:embed calls.txt
var callList string

// call is a line of the list.
type call struct {
	line, who, method, path string
	params                  url.Values
	// flags are the words with a colon: how to send the call, or what to compare of its answer.
	flags []string
}

func (c call) hasFlag(flag string) bool { return slices.Contains(c.flags, flag) }

// calls parses the list, without expanding placeholders.
func calls() []call {
	var all []call

	for line := range strings.Lines(callList) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}

		c := call{line: strings.Join(words, " "), params: url.Values{}}
		if who, ok := strings.CutPrefix(words[0], "@"); ok {
			c.who, words = who, words[1:]
		}

		c.method, c.path = words[0], words[1]

		for _, word := range words[2:] {
			if flag, ok := strings.CutPrefix(word, ":"); ok {
				c.flags = append(c.flags, flag)

				continue
			}

			for pair := range strings.SplitSeq(word, "&") {
				name, value, _ := strings.Cut(pair, "=")
				c.params.Add(name, value)
			}
		}

		all = append(all, c)
	}

	return all
}

// Place is the host and the storages that the calls use.
type Place struct {
	// Node is the host, Bridge its bridge, Files a directory storage for ISOs and images, Images one for disks.
	Node   string `json:"node"`
	Files  string `json:"files"`
	Images string `json:"images"`
	Bridge string `json:"bridge"`
	// FilesPath and ImagesPath are the folders of the storages.
	FilesPath  string `json:"filesPath"`
	ImagesPath string `json:"imagesPath"`
}

// expand replaces the placeholders in a text of the list.
func (p Place) expand(text, web, task string) (string, error) {
	sum := sha256.Sum256(discFile)

	text = strings.NewReplacer(
		"{node}", p.Node, "{files}", p.Files, "{images}", p.Images, "{bridge}", p.Bridge, "{web}", web, "{task}", task,
		"{sha256}", hex.EncodeToString(sum[:]),
	).Replace(text)

	before, rest, found := strings.Cut(text, "{privileges:")
	if !found {
		return text, nil
	}

	name, after, _ := strings.Cut(rest, "}")
	role, without, _ := strings.Cut(name, "-")

	for _, r := range slices.Concat(permissions.Roles(), permissions.KubernetesRoles()) {
		if r.ID == role {
			privileges := slices.DeleteFunc(r.Privileges(), func(p string) bool { return p == without })

			return before + strings.Join(privileges, ",") + after, nil
		}
	}

	return "", fmt.Errorf("there is no role %s in docs/permissions.md", role)
}

// expand returns the call to send, without placeholders.
func (c call) expand(p Place, web, task string) (call, error) {
	path, err := p.expand(c.path, web, task)
	if err != nil {
		return c, err
	}

	params := url.Values{}

	for name, values := range c.params {
		for _, value := range values {
			if value, err = p.expand(value, web, task); err == nil {
				value, err = url.PathUnescape(value)
			}

			if err != nil {
				return c, fmt.Errorf("%s: %w", c.line, err)
			}

			params.Add(name, value)
		}
	}

	c.path, c.params = path, params

	return c, nil
}
