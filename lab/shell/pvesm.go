package shell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

func (s *Server) pvesmCommands() map[string]subcommand {
	return map[string]subcommand{
		"path":   {"pvesm path <volume>", "", false, s.pvesmPath},
		"status": {"pvesm status [OPTIONS]", " storage content enabled target format ", false, s.pvesmStatus},
		"list":   {"pvesm list <storage> [OPTIONS]", " content vmid ", false, s.pvesmList},
		"free":   {"pvesm free <volume> [OPTIONS]", " storage delay ", false, s.pvesmFree},
	}
}

// pvesm is Proxmox' command for storages.
func (s *Server) pvesm(ctx context.Context, c call) error {
	if err := s.dc.Rescan(s.host); err != nil {
		return err
	}

	if len(c.words) < 2 {
		return usageError{"ERROR: no command specified\nUSAGE: pvesm <COMMAND> [ARGS] [OPTIONS]"}
	}

	sub, known := s.pvesmCommands()[c.words[1]]
	if !known {
		return usageError{
			fmt.Sprintf("ERROR: unknown command 'pvesm %s'\nUSAGE: pvesm <COMMAND> [ARGS] [OPTIONS]", c.words[1]),
		}
	}

	a, err := parseArguments(c.words[2:], sub.usage, sub.options, sub.configuration)
	if err != nil {
		return err
	}

	return sub.do(ctx, c, a)
}

// pvesmPath prints where a volume lies. As on Proxmox, the volume need not exist; that of a file that does lies below
// the root folder, where programs find it.
func (s *Server) pvesmPath(_ context.Context, c call, a arguments) error {
	path, err := s.dc.VolumePath(s.host, a.fixed[0])
	if err != nil {
		return err
	}

	if err := s.materialise(a.fixed[0]); err != nil {
		return err
	}

	c.printf("%s\n", s.inside("/", path))

	return nil
}

func (s *Server) pvesmStatus(_ context.Context, c call, a arguments) error {
	if name := a.options["storage"]; name != "" {
		if _, err := s.dc.Storage(s.host, name); err != nil {
			return err
		}
	}

	storages := slices.DeleteFunc(s.dc.Storages(s.host), func(st datacentre.Storage) bool {
		content := a.options["content"]

		return (a.options["storage"] != "" && st.Name != a.options["storage"]) || (content != "" &&
			!slices.Contains(st.Content, content))
	})

	width := len("Name")
	for _, st := range storages {
		width = max(width, len(st.Name))
	}

	c.printf(
		"%-*s %10s %10s %15s %15s %15s %8s\n", width, "Name", "Type", "Status", "Total (KiB)", "Used (KiB)",
		"Available (KiB)", "%",
	)

	for _, st := range storages {
		status, total, used := "active", st.SizeBytes>>10, st.UsedBytes>>10
		if st.Disabled {
			c.printf("%-*s %10s %10s %15d %15d %15d %8s\n", width, st.Name, st.Type, "disabled", 0, 0, 0, "N/A")

			continue
		}

		share := 0.0
		if total > 0 {
			share = float64(used) * 100 / float64(total)
		}

		c.printf("%-*s %10s %10s %15d %15d %15d %7.2f%%\n", width, st.Name, st.Type, status, total, used, total-used, share)
	}

	return nil
}

func (s *Server) pvesmList(_ context.Context, c call, a arguments) error {
	if _, err := s.dc.Storage(s.host, a.fixed[0]); err != nil {
		return err
	}

	volumes := slices.DeleteFunc(s.dc.Volumes(s.host, a.fixed[0], a.options["content"]), func(v datacentre.Volume) bool {
		return a.options["vmid"] != "" && strconv.Itoa(v.VMID) != a.options["vmid"]
	})

	width := len("Volid")
	for _, v := range volumes {
		width = max(width, len(v.ID))
	}

	c.printf("%-*s %-7s %-9s %14s %s\n", width, "Volid", "Format", "Type", "Size", "VMID")

	for _, v := range volumes {
		owner := ""
		if v.VMID != 0 {
			owner = strconv.Itoa(v.VMID)
		}

		c.printf(
			"%s\n",
			strings.TrimRight(fmt.Sprintf("%-*s %-7s %-9s %14d %s", width, v.ID, v.Format, v.Content, v.SizeBytes, owner), " "),
		)
	}

	return nil
}

func (s *Server) pvesmFree(ctx context.Context, c call, a arguments) error {
	volume := a.fixed[0]
	if name := a.options["storage"]; name != "" && !strings.Contains(volume, ":") {
		volume = name + ":" + volume
	}

	upid, err := s.dc.DeleteVolume(apiUser, s.host, volume)
	if err := s.task(ctx, c, upid, err); err != nil {
		return err
	}

	c.printf("Removed volume '%s'\n", volume)

	return nil
}
