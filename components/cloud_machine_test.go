package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

// The other inputs of the VM are in the golden files of stacks/registered_test.go.
func TestCloudMachinePasswordIsSecret(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewCloudMachine(ctx, "web-1", CloudMachineArgs{
			Machine: Machine{Host: "pve1", VMID: 5000, MAC: "02:00:00:00:3c:00", Template: pulumi.Int(941)},
			User:    "ops", Password: pulumi.String("not to be seen"),
		})

		return err
	})
	require.NoError(t, err)
	assert.True(t, r.ByType(tokens.VirtualMachine)["web-1-vm"].Input("initialization.userAccount.password").IsSecret())
}

func TestCloudMachineReportsAllProblems(t *testing.T) {
	t.Parallel()

	args := CloudMachineArgs{
		Machine: Machine{ExtraDisks: []Disk{{Interface: "scsi1", SizeGiB: 1}}}, Network: &Network{DHCP: true},
		Address: pulumi.String("127.1.1.60/24"),
	}
	_, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewCloudMachine(ctx, "web-1", args)

		return err
	})
	require.Error(t, err)

	for _, part := range []string{
		"machine.host", "machine.vmid", "machine.mac", "machine.template", "address: is set, and network.dhcp too",
		"machine.extraDisks[0].interface", "user: is missing",
	} {
		assert.ErrorContains(t, err, part)
	}
}
