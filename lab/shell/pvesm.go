package shell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// pvesm is Proxmox' command for storages.
func (s *Server) pvesm(ctx context.Context, c call) error {
	return s.program(ctx, c, map[string]subcommand{
		"path": {usage: "pvesm path <volume>", do: s.pvesmPath},
		"list": {usage: "pvesm list <storage> [OPTIONS]", options: "content vmid", do: s.pvesmList},
	})
}

// pvesmPath prints where a volume lies. As on Proxmox, the volume need not exist; that of a file that does lies below
// the root folder, where programs find it.
func (s *Server) pvesmPath(_ context.Context, c call, a arguments) error {
	path, err := s.dc.VolumePath(s.host, a.fixed[0])
	if err != nil {
		return err
	}

	c.printf("%s\n", s.inside("/", path))

	return nil
}

func (s *Server) pvesmList(_ context.Context, c call, a arguments) error {
	if _, err := s.dc.Storage(s.host, a.fixed[0]); err != nil {
		return err
	}

	volumes := slices.DeleteFunc(s.dc.Volumes(s.host, a.fixed[0], a.get("content")), func(v datacentre.Volume) bool {
		return a.get("vmid") != "" && strconv.Itoa(v.VMID) != a.get("vmid")
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
