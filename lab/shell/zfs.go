package shell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

func (t table) size(bytes int64) string {
	if t.exact {
		return strconv.FormatInt(bytes, 10)
	}

	return fmt.Sprintf("%dG", bytes/datacentre.GiB)
}

// pools are those with the names, or all; it says which do not exist.
func (s *Server) pools(c call, names []string) ([]datacentre.ZPool, error) {
	all := s.this().Pools

	for _, name := range names {
		if !slices.ContainsFunc(all, func(p datacentre.ZPool) bool { return p.Name == name }) {
			c.errorf("cannot open '%s': no such pool\n", name)

			return nil, interp.ExitStatus(statusFailed)
		}
	}

	if len(all) == 0 {
		c.errorf("no pools available\n")
	}

	return slices.DeleteFunc(
		slices.Clone(all), func(p datacentre.ZPool) bool { return len(names) > 0 && !slices.Contains(names, p.Name) },
	), nil
}

func (s *Server) poolProperties(p datacentre.ZPool, t table) map[string]string {
	used := s.dc.PoolUsed(s.host, p)
	number := func(text string) string {
		if t.exact {
			return strings.TrimRight(text, "%x")
		}

		return text
	}
	share := number(fmt.Sprintf("%d%%", used*100/p.SizeBytes))

	return map[string]string{
		"name":          p.Name,
		"size":          t.size(p.SizeBytes),
		"alloc":         t.size(used),
		"allocated":     t.size(used),
		"free":          t.size(p.SizeBytes - used),
		"health":        p.Health,
		"frag":          number("1%"),
		"fragmentation": number("1%"),
		"cap":           share,
		"capacity":      share,
		"dedup":         number("1.00x"),
		"dedupratio":    number("1.00x"),
		"altroot":       "-", "ckpoint": "-", "expandsz": "-", "ashift": strconv.Itoa(p.Ashift), "autotrim": "off",
	}
}

func (s *Server) zpool(_ context.Context, c call) error {
	if len(c.words) < 2 {
		c.errorf("missing command\nusage: zpool command args ...\n")

		return interp.ExitStatus(statusUsage)
	}

	words := c.words[2:]

	switch c.words[1] {
	case "list":
		t := parseTable(
			words, "name", "size", "alloc", "free", "ckpoint", "expandsz", "frag", "cap", "dedup", "health", "altroot",
		)

		list, err := s.pools(c, t.names)
		if err != nil || len(list) == 0 {
			return err
		}

		rows := make([]map[string]string, 0, len(list))
		for _, p := range list {
			rows = append(rows, s.poolProperties(p, t))
		}

		return t.print(c, rows)
	case "get":
		return s.get(c, words, func(t table, name string) (map[string]string, error) {
			list, err := s.pools(c, []string{name})
			if err != nil {
				return nil, err
			}

			return s.poolProperties(list[0], t), nil
		})
	case "status":
		return s.zpoolStatus(c, words)
	default:
		c.errorf(
			"unrecognized command '%s'\nusage: zpool command args ...\n       the lab's: get, list, status\n", c.words[1],
		)

		return interp.ExitStatus(statusUsage)
	}
}

// get prints properties: get [-Hp] [-o columns] property[,…] name….
func (s *Server) get(c call, words []string, properties func(t table, name string) (map[string]string, error)) error {
	t := parseTable(words, "name", "property", "value", "source")
	if len(t.names) == 0 {
		c.errorf("missing property argument\n")

		return interp.ExitStatus(statusUsage)
	}

	var rows []map[string]string

	names := t.names[1:]
	if len(names) == 0 {
		for _, p := range s.this().Pools {
			names = append(names, p.Name)
		}
	}

	for _, name := range names {
		all, err := properties(t, name)
		if err != nil {
			return err
		}

		for property := range strings.SplitSeq(t.names[0], ",") {
			value, known := all[property]
			if !known {
				c.errorf("bad property list: invalid property '%s'\n", property)

				return interp.ExitStatus(statusUsage)
			}

			rows = append(rows, map[string]string{"name": name, "property": property, "value": value, "source": "local"})
		}
	}

	return t.print(c, rows)
}

func (s *Server) zpoolStatus(c call, words []string) error {
	t := parseTable(words)

	list, err := s.pools(c, t.names)
	if err != nil {
		return err
	}

	if slices.Contains(words, "-x") &&
		!slices.ContainsFunc(list, func(p datacentre.ZPool) bool { return p.Health != "ONLINE" }) {
		c.printf("all pools are healthy\n")

		return nil
	}

	for _, p := range list {
		c.printf("  pool: %s\n state: %s\n  scan: scrub repaired 0B in 00:04:11 with 0 errors on Sun Nov  9 00:28:12 2025\nconfig:\n\n", p.Name, p.Health)

		indent := "\t  "

		c.printf("\t%-60s STATE     READ WRITE CKSUM\n\t%-60s %-8s     0     0     0\n", "NAME", p.Name, p.Health)

		if p.Mirror {
			c.printf("\t%-60s %-8s     0     0     0\n", "  mirror-0", p.Health)

			indent = "\t    "
		}

		for _, disk := range p.Disks {
			c.printf("%-61s %-8s     0     0     0\n", indent+disk, "ONLINE")
		}

		c.printf("\nerrors: No known data errors\n")
	}

	return nil
}

// zfs knows the properties of datasets that advice is given about.
func (s *Server) zfs(_ context.Context, c call) error {
	if len(c.words) < 2 || (c.words[1] != "get" && c.words[1] != "list") {
		c.errorf("unrecognized command\nusage: zfs command args ...\n       the lab's: get, list\n")

		return interp.ExitStatus(statusUsage)
	}

	properties := func(t table, name string) (map[string]string, error) {
		pool, _, _ := strings.Cut(name, "/")
		i := slices.IndexFunc(s.this().Pools, func(p datacentre.ZPool) bool { return p.Name == pool })

		if i < 0 {
			c.errorf("cannot open '%s': dataset does not exist\n", name)

			return nil, interp.ExitStatus(statusFailed)
		}

		numbers := s.poolProperties(s.this().Pools[i], t)

		return map[string]string{
			"name":        name,
			"used":        numbers["alloc"],
			"avail":       numbers["free"],
			"available":   numbers["free"],
			"refer":       t.size(0),
			"mountpoint":  "/" + name,
			"compression": "on",
			"xattr":       "sa",
			"atime":       "on",
			"relatime":    "on",
			"acltype":     "off",
			"recordsize":  "128K",
			"type":        "filesystem",
		}, nil
	}

	if c.words[1] == "get" {
		return s.get(c, c.words[2:], properties)
	}

	t := parseTable(c.words[2:], "name", "used", "avail", "refer", "mountpoint")

	var rows []map[string]string

	for _, p := range s.this().Pools {
		for _, dataset := range []string{p.Name, p.Name + "/ROOT", p.Name + "/ROOT/pve-1", p.Name + "/data"} {
			if strings.Contains(dataset, "ROOT") && !p.Root || len(t.names) > 0 && !slices.Contains(t.names, dataset) {
				continue
			}

			row, err := properties(t, dataset)
			if err != nil {
				return err
			}

			rows = append(rows, row)
		}
	}

	if len(rows) == 0 {
		c.errorf("no datasets available\n")

		return nil
	}

	return t.print(c, rows)
}
