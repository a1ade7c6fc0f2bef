package shell

import (
	"context"
	"fmt"
	"strings"
)

// pvesm is Proxmox' command for storages.
func (s *Server) pvesm(ctx context.Context, c call) error {
	return s.dispatch(ctx, c, map[string]subcommand{
		"path": {usage: "pvesm path <volume>", print: s.pvesmPath},
		"list": {
			usage: "pvesm list <storage> [OPTIONS]", apiCall: "get /nodes/{node}/storage/{storage}/content", print: pvesmList,
		},
	})
}

// pvesmPath prints a volume's path. As on Proxmox, the volume need not exist. The path is inside the root folder, where
// programs find the file.
func (s *Server) pvesmPath(_ context.Context, c call, a arguments, _ any) error {
	path, err := s.dc.VolumePath(s.host, a.positional[0])
	if err != nil {
		return err
	}

	c.printf("%s\n", s.localPath("/", path))

	return nil
}

func pvesmList(_ context.Context, c call, _ arguments, answer any) error {
	volumes := rows(answer)

	width := len("Volid")
	for _, v := range volumes {
		width = max(width, len(text(v["volid"])))
	}

	c.printf("%-*s %-7s %-9s %14s %s\n", width, "Volid", "Format", "Type", "Size", "VMID")

	for _, v := range volumes {
		line := fmt.Sprintf(
			"%-*s %-7s %-9s %14s %s", width, v["volid"], v["format"], v["content"], text(v["size"]), text(v["vmid"]),
		)
		c.printf("%s\n", strings.TrimRight(line, " "))
	}

	return nil
}
