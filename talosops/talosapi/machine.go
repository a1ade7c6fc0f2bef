package talosapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kubeupgrade"
)

// Version returns the version of Talos that a machine runs.
func (t *Client) Version(ctx context.Context, address netip.Addr) (version string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		resp, err := c.Version(ctx)
		if err == nil && len(resp.GetMessages()) == 0 {
			err = errEmptyAnswer
		}

		for _, message := range resp.GetMessages() {
			version = message.GetVersion().GetTag()
		}

		return err
	})

	return version, err
}

// NoSchematic stands for an image that is not the Image Factory's: it has no extensions, so a machine that boots it
// loses those of its previous image.
const NoSchematic = "none"

// Schematic returns the schematic id of a machine's image, which the Image Factory adds as the version of a pseudo
// extension named schematic.
func (t *Client) Schematic(ctx context.Context, address netip.Addr) (id string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c.COSI)
		if err != nil {
			return err
		}

		id = NoSchematic

		for e := range extensions.All() {
			if e.TypedSpec().Metadata.Name == "schematic" {
				id = e.TypedSpec().Metadata.Version
			}
		}

		return nil
	})

	return id, err
}

// Services lists the services of a machine with their health.
func (t *Client) Services(ctx context.Context, address netip.Addr) (list []Service, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		resp, err := c.ServiceList(ctx)

		for _, message := range resp.GetMessages() {
			for _, s := range message.GetServices() {
				health := s.GetHealth()
				list = append(list, Service{
					ID: s.GetId(), State: s.GetState(), Known: health != nil && !health.GetUnknown(), Healthy: health.GetHealthy(),
					Message: health.GetLastMessage(),
				})
			}
		}

		return err
	})

	return list, err
}

// BootID returns the kernel's boot id, which changes with each boot.
func (t *Client) BootID(ctx context.Context, address netip.Addr) (id string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		var content strings.Builder

		file, err := c.Read(ctx, "/proc/sys/kernel/random/boot_id")
		err = copyStream(&content, file, err)

		if id = strings.TrimSpace(content.String()); id == "" && err == nil {
			err = errEmptyAnswer
		}

		return err
	})

	return id, err
}

// Reboot restarts a machine: by kexec, Talos' default, or with a reset of its devices.
func (t *Client) Reboot(ctx context.Context, address netip.Addr, devices bool) error {
	mode := machineapi.RebootRequest_DEFAULT
	if devices {
		mode = machineapi.RebootRequest_POWERCYCLE
	}

	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.Reboot(ctx, client.WithRebootMode(mode))
	})
}

// Configuration returns the active machine configuration, and the one on disk if it was written since the boot.
func (t *Client) Configuration(ctx context.Context, address netip.Addr) (active, persistent string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		for id, to := range map[string]*string{configres.ActiveID: &active, configres.PersistentID: &persistent} {
			found, err := safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, id)
			if state.IsNotFoundError(err) {
				continue
			}

			if err != nil {
				return err
			}

			text, err := found.Provider().Bytes()
			if err != nil {
				return errors.New("it is not a machine configuration") // err may quote it
			}

			*to = string(text)
		}

		return nil
	})

	return active, persistent, err
}

// noChangesSuffix ends Talos' response if the machine has this configuration already.
const noChangesSuffix = "No changes."

// DryRun makes a dry run of a configuration. Talos does not report which parts take effect only after a restart: the
// diff with the active configuration shows them.
func (t *Client) DryRun(ctx context.Context, address netip.Addr, configuration []byte) (DryRunResult, error) {
	var resp *machineapi.ApplyConfigurationResponse

	err := t.call(ctx, address, func(ctx context.Context, c *client.Client) (err error) {
		resp, err = c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
		})

		return err
	})
	if err != nil {
		return DryRunResult{}, err
	}

	for _, message := range resp.GetMessages() {
		switch {
		case strings.HasSuffix(strings.TrimSpace(message.GetModeDetails()), noChangesSuffix):
			return DryRunResult{Effect: Unchanged}, nil
		case message.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT:
			return DryRunResult{Effect: WithReboot}, nil
		}
	}

	running, _, err := t.Configuration(ctx, address)
	if err != nil {
		return DryRunResult{}, err
	}

	pending, err := talos.ChangesRequiringRestart(running, string(configuration))

	return DryRunResult{Effect: WithoutReboot, Pending: pending}, err
}

// Apply applies a configuration. Releases that restart machines for some changes restart them.
func (t *Client) Apply(ctx context.Context, address netip.Addr, configuration []byte) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO,
		})

		return err
	})
}

// Try applies a configuration without a restart, until Talos reverts it after a period, and closes the connection: a
// firewall lets open ones continue. Any other request to apply one, also a dry run, ends the period, and the machine
// keeps the configuration until its next boot (internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go).
func (t *Client) Try(ctx context.Context, address netip.Addr, configuration []byte, period time.Duration) error {
	defer t.disconnect(address)

	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_TRY, TryModeTimeout: durationpb.New(period),
		})

		return err
	})
}

// Provision applies a configuration to a machine in maintenance mode, over connections that config verifies.
func (*Client) Provision(ctx context.Context, address netip.Addr, config *tls.Config, configuration []byte) error {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	c, err := client.New(
		ctx, client.WithTLSConfig(config), client.WithEndpoints(address.String()),
		client.WithGRPCDialOptions(grpc.WithNoProxy()),
	)
	if err != nil {
		return fmt.Errorf("unable to connect to Talos on %s: %w", address, err)
	}

	defer func() { _ = c.Close() }()

	if _, err = c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	}); err != nil {
		return rpcError{status.Convert(err)}
	}

	return nil
}

// Reconfigure applies a configuration without a restart.
func (t *Client) Reconfigure(ctx context.Context, address netip.Addr, configuration []byte) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})

		return err
	})
}

// KubeletStart returns the time at which Talos created the kubelet's service, or an error if it is not healthy. When
// its settings change, Talos removes the service and creates it again.
func (t *Client) KubeletStart(ctx context.Context, address netip.Addr) (started string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		kubelet, err := safe.StateGetByID[*v1alpha1.Service](ctx, c.COSI, "kubelet")

		switch {
		case state.IsNotFoundError(err):
			return errors.New("its kubelet does not run")
		case err != nil:
			return err
		case !kubelet.TypedSpec().Running || !kubelet.TypedSpec().Healthy:
			return errors.New("its kubelet is not healthy")
		}

		started = kubelet.Metadata().Created().String()

		return nil
	})

	return started, err
}

// Kubeconfig returns an administrator's kubeconfig, generated by a control plane.
func (t *Client) Kubeconfig(ctx context.Context, address netip.Addr) (text string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		content, err := c.Kubeconfig(ctx)
		text = string(content)

		return err
	})

	return text, err
}

// KubernetesImages returns the images of a control plane's static pods and kubelet.
func (t *Client) KubernetesImages(ctx context.Context, address netip.Addr) (images kubeupgrade.Images, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		server, serverErr := getOrDefault[*k8s.APIServerConfig](ctx, c, k8s.NewAPIServerConfig(k8s.APIServerConfigID))
		manager, managerErr := getOrDefault[*k8s.ControllerManagerConfig](
			ctx, c, k8s.NewControllerManagerConfig(k8s.ControllerManagerConfigID))
		scheduler, schedulerErr := getOrDefault[*k8s.SchedulerConfig](ctx, c, k8s.NewSchedulerConfig(k8s.SchedulerConfigID))
		kubelet, kubeletErr := getOrDefault[*k8s.KubeletSpec](ctx, c, k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID))

		images = kubeupgrade.Images{
			APIServer: server.TypedSpec().Image, ControllerManager: manager.TypedSpec().Image,
			Scheduler: scheduler.TypedSpec().Image, Kubelet: kubelet.TypedSpec().Image,
		}

		return cmp.Or(serverErr, managerErr, schedulerErr, kubeletErr)
	})

	return images, err
}

// getOrDefault reads a resource, and returns fallback if it does not exist.
func getOrDefault[R resource.Resource](ctx context.Context, c *client.Client, fallback R) (R, error) {
	found, err := safe.StateGet[R](ctx, c.COSI, *fallback.Metadata())

	switch {
	case state.IsNotFoundError(err):
		return fallback, nil
	case err != nil:
		return fallback, err
	default:
		return found, nil
	}
}

// Reset wipes a machine's configuration and data, and shuts it down.
func (t *Client) Reset(ctx context.Context, address netip.Addr) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true}, {Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
		})
	})
}
