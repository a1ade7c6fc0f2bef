package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Project is where a program finds a stack's project, and the programs that it calls.
type Project struct {
	Folder, Pulumi, TalosOps string
}

// Flags adds those that say so to a command, and to those below it.
func (p *Project) Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&p.Folder, "project", ".", "folder of Pulumi.yaml")
	flags.StringVar(&p.Pulumi, "pulumi", ".bin/pulumi", "path of the Pulumi CLI")
	flags.StringVar(&p.TalosOps, "talosops", ".bin/talosops", "path of talosops")
}

// Absolute is the project with paths that hold in any folder: the Pulumi CLI works in the project's.
func (p *Project) Absolute() (Project, error) {
	absolute := *p

	for _, path := range []*string{&absolute.Folder, &absolute.Pulumi, &absolute.TalosOps} {
		found, err := filepath.Abs(*path)
		if err != nil {
			return Project{}, fmt.Errorf("unable to find %s: %w", *path, err)
		}

		*path = found
	}

	return absolute, nil
}
