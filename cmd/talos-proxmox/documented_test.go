package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocumentedCommands: the commands in documents, workflows, units and messages exist, with their flags.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()

	folder := filepath.Join("..", "..")
	call := regexp.MustCompile("(?:`|\\$ |\\.bin/)talos-proxmox ([a-z][^`|;&\n)]*)")
	inGo := regexp.MustCompile("`talos-proxmox ([a-z][^`|;&\n)]*)`")
	count := 0

	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion", "bash")

	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()

		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(name, ".") && path != folder && name != ".github":
			return filepath.SkipDir
		case !slices.Contains([]string{".md", ".yaml", ".service", ".go"}, filepath.Ext(name)):
			return nil
		}

		text, err := os.ReadFile(path)
		require.NoError(t, err)

		pattern := call
		if filepath.Ext(name) == ".go" { // code has other uses of these words
			pattern = inGo
		}

		for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(match[1], " #") // a comment follows
			words := strings.Fields(line)

			cmd, rest, err := root.Find(words)
			if assert.NoError(t, err, "%s: %s", path, match[0]) {
				assert.Empty(t, unknownFlags(cmd.Flag, rest), "%s: %s", path, match[0])
				assert.True(t, cmd.Runnable() || len(rest) == 0, "%s: %s is no command", path, match[0])
			}

			count++
		}

		return nil
	}))
	assert.Greater(t, count, 50)
}

// unknownFlags returns the flags among words that a command does not have.
func unknownFlags[F any](flag func(string) *F, words []string) []string {
	var unknown []string

	for _, word := range words {
		if name, long := strings.CutPrefix(strings.Trim(word, `"'.,:`), "--"); long {
			if name, _, _ = strings.Cut(name, "="); name != "" && flag(name) == nil {
				unknown = append(unknown, name)
			}
		}
	}

	return unknown
}
