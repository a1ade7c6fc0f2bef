package shell

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// df knows the root file system, on which everything of the host lies: df [-P|-k|-h|-T|-B1|-BM|-BG] [--output=…]
// [file…].
func (s *Server) df(_ context.Context, c call) error {
	unit, head, share, columns := int64(1<<10), "1K-blocks", "Use%", []string{
		"source", "size", "used", "avail", "pcent", "target",
	}

	for _, word := range c.words[1:] {
		size, isSize := strings.CutPrefix(word, "-B")
		if long, found := strings.CutPrefix(word, "--block-size="); found {
			size, isSize = long, true
		}

		list, isOutput := strings.CutPrefix(word, "--output=")

		switch {
		case isOutput:
			columns = strings.Split(list, ",")
		case isSize:
			units := map[string]int64{
				"1": 1, "1K": 1 << 10, "K": 1 << 10, "1M": 1 << 20, "M": 1 << 20, "1G": 1 << 30, "G": 1 << 30,
			}
			if unit = units[size]; unit == 0 {
				c.errorf("df: invalid --block-size argument '%s'\n", size)

				return interp.ExitStatus(statusFailed)
			}

			head = size + "-blocks"
		case strings.HasPrefix(word, "-"):
			if strings.Contains(word, "P") {
				head, share = "1024-blocks", "Capacity"
			}

			if strings.Contains(word, "h") {
				unit, head = 1<<30, "Size"
			}

			if strings.Contains(word, "T") {
				columns = slices.Insert(columns, 1, "fstype")
			}
		case !s.there(c, word):
			c.errorf("df: %s: No such file or directory\n", word)

			return interp.ExitStatus(statusFailed)
		}
	}

	source, kind := "/dev/mapper/pve-root", "ext4"
	if pool := s.this().ZFSRoot(); pool != "" {
		source, kind = pool+"/ROOT/pve-1", "zfs"
	}

	suffix := map[bool]string{true: "G"}[head == "Size"]
	size, used := datacentre.RootBytes, datacentre.RootUsedBytes
	heads := map[string]string{
		"source": "Filesystem",
		"fstype": "Type",
		"size":   head,
		"used":   "Used",
		"avail":  "Available",
		"pcent":  share,
		"target": "Mounted on",
	}
	values := map[string]string{
		"source": source,
		"fstype": kind,
		"size":   fmt.Sprint(size/unit, suffix),
		"used":   fmt.Sprint(used/unit, suffix),
		"avail":  fmt.Sprint((size-used)/unit, suffix),
		"pcent":  fmt.Sprintf("%d%%", used*100/size), "target": "/",
	}

	for _, row := range []map[string]string{heads, values} {
		line := make([]string, 0, len(columns))
		for _, column := range columns {
			width := max(len(heads[column]), len(values[column]))
			if slices.Contains([]string{"source", "fstype", "target"}, column) {
				width = -width // these stand left
			}

			line = append(line, fmt.Sprintf("%*s", width, row[column]))
		}

		c.printf("%s\n", strings.TrimRight(strings.Join(line, " "), " "))
	}

	return nil
}

func (s *Server) there(c call, name string) bool {
	_, err := os.Stat(s.inside(c.Dir, name))

	return err == nil
}

// lsblk lists the host's disks: lsblk [-dn] [-o columns].
func (s *Server) lsblk(_ context.Context, c call) error {
	columns, head, disksOnly := []string{"NAME", "MAJ:MIN", "RM", "SIZE", "RO", "TYPE", "MOUNTPOINTS"}, true, false

	for i := 1; i < len(c.words); i++ {
		word := c.words[i]
		if !strings.HasPrefix(word, "-") {
			continue
		}

		head, disksOnly = head && !strings.Contains(word, "n"), disksOnly || strings.Contains(word, "d")

		if strings.HasSuffix(word, "o") && i+1 < len(c.words) {
			i++
			columns = strings.Split(strings.ToUpper(c.words[i]), ",")
		}
	}

	kind, root, mount := "ext4", "pve-root", "/"
	if s.this().ZFSRoot() != "" {
		kind, root, mount = "zfs_member", "", ""
	}

	row := func(name, size, kind, fs, mount string) map[string]string {
		return map[string]string{
			"NAME":        name,
			"KNAME":       name,
			"SIZE":        size,
			"TYPE":        kind,
			"FSTYPE":      fs,
			"MOUNTPOINT":  mount,
			"MOUNTPOINTS": mount,
			"RM":          "0",
			"RO":          "0",
			"MAJ:MIN":     "259:0",
			"ROTA":        "0", "MODEL": "SAMSUNG MZVL21T0HCLR-00B00", "SERIAL": "S676NX0R500001", "TRAN": "nvme",
		}
	}
	rows := []map[string]string{row("nvme0n1", "953.9G", "disk", "", "")}

	if !disksOnly {
		rows = append(rows, row("nvme0n1p1", "1007K", "part", "", ""), row("nvme0n1p2", "1G", "part", "vfat", ""))

		if root == "" {
			rows = append(rows, row("nvme0n1p3", "952.9G", "part", kind, mount))
		} else {
			rows = append(rows, row("nvme0n1p3", "952.9G", "part", "LVM2_member", ""), row(root, "96G", "lvm", kind, mount))
		}
	}

	t := table{columns: columns}
	if !head {
		t.script = true
	}

	return t.print(c, rows)
}
