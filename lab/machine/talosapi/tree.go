package talosapi

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is a file or folder of a machine.
type entry struct {
	path, relative string
	content        string
	folder         bool
	depth          int
}

func (e entry) mode() fs.FileMode {
	if e.folder {
		return fs.ModeDir | 0o755
	}

	return 0o644
}

// walk lists what is at a path and below, folders before their content; the error is the file system's.
func (f Files) walk(root string) ([]entry, time.Time, error) {
	files, booted := f.Tree()

	root = path.Clean("/" + root)
	if content, ok := files[root]; ok {
		return []entry{{path: root, relative: path.Base(root), content: content}}, booted, nil
	}

	found := map[string]entry{root: {path: root, relative: ".", folder: true}}

	for name, content := range files {
		relative, inside := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
		if !inside {
			continue
		}

		parts := strings.Split(relative, "/")

		for i := range parts {
			below := strings.Join(parts[:i+1], "/")
			e := entry{path: path.Join(root, below), relative: below, folder: true, depth: i + 1}

			if i == len(parts)-1 {
				e.folder, e.content = false, content
			}

			found[e.path] = e
		}
	}

	if len(found) == 1 && root != "/" {
		return nil, booted, fmt.Errorf("lstat %s: no such file or directory", root)
	}

	entries := make([]entry, 0, len(found))
	for _, e := range found {
		entries = append(entries, e)
	}

	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })

	return entries, booted, nil
}
