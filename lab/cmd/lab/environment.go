package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/lab/control"
)

// newEnvironment serves clients of the Proxmox API, such as talos-proxmox init.
func newEnvironment(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Print the variables with which other clients reach the lab's Proxmox as root@pam",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := control.NewClient(f.dir).Status(cmd.Context())
			if err != nil {
				return err
			}

			c := status.Connection
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"PROXMOX_VE_ENDPOINT=%s\nPROXMOX_VE_USERNAME=root@pam\nPROXMOX_VE_PASSWORD=%s\nSSL_CERT_FILE=%s\n",
				c.Endpoint, c.Password, c.CA)

			return err
		},
	}
}
