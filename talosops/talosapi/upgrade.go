package talosapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// Install writes another image beside the running one, on a release of Talos with the lifecycle service. It returns
// when the installer has exited; the machine keeps running, and boots the new image at its next restart.
func (t *Client) Install(ctx context.Context, address netip.Addr, installer string) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		name, err := pull(ctx, c, installer)
		if err != nil {
			return err
		}

		return runInstaller(ctx, c, name)
	})
}

// systemImages returns where Talos keeps its own images, which include etcd's and the kubelet's.
func systemImages() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}
}

// pull makes a machine pull an image, and returns its name on the machine.
func pull(ctx context.Context, c *client.Client, image string) (name string, err error) {
	stream, err := c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{
		Containerd: systemImages(), ImageRef: image,
	})
	if err != nil {
		return "", err //nolint:wrapcheck // callLong converts it
	}

	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}

		if err != nil {
			return "", err //nolint:wrapcheck // callLong converts it
		}

		name = cmp.Or(answer.GetName(), name)
	}
}

// runInstaller runs a pulled installer. If it fails, the error has the last line of its output.
func runInstaller(ctx context.Context, c *client.Client, name string) error {
	stream, err := c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: systemImages(), Source: &machineapi.InstallArtifactsSource{ImageName: name},
	})
	if err != nil {
		return err //nolint:wrapcheck // callLong converts it
	}

	exited, last := false, ""

	for {
		answer, err := stream.Recv()

		switch {
		case errors.Is(err, io.EOF) && exited:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the installer did not say how it ended")
		case err != nil:
			return err //nolint:wrapcheck // callLong converts it
		}

		switch r := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			last = strings.TrimSpace(r.Message)
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			if exited = true; r.ExitCode != 0 {
				return fmt.Errorf("the installer ended with %d: %s", r.ExitCode, last)
			}
		}
	}
}

// Upgrade installs and boots another image, on a release of Talos without the lifecycle service. It returns when the
// machine has pulled the image and has checked it and etcd. By default it is neither forced nor staged.
func (t *Client) Upgrade(ctx context.Context, address netip.Addr, installer string, devices bool) error {
	mode := machineapi.UpgradeRequest_DEFAULT
	if devices {
		mode = machineapi.UpgradeRequest_POWERCYCLE
	}

	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.UpgradeWithOptions(ctx, client.WithUpgradeImage(installer), client.WithUpgradeRebootMode(mode))

		return err
	})
}

// Failures watches a machine's events and returns the error of a failed sequence, until the context or the stream ends.
func (t *Client) Failures(ctx context.Context, address netip.Addr) <-chan string {
	failures := make(chan string, 1)

	go func() {
		results := make(chan client.EventResult)

		if err := t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
			return c.EventsWatchV2(ctx, results)
		}); err != nil {
			return
		}

		for {
			select {
			case r := <-results:
				event, _ := r.Event.Payload.(*machineapi.SequenceEvent)
				if event.GetError() != nil {
					failures <- event.GetError().GetMessage()
				}

				if r.Error != nil || event.GetError() != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	return failures
}
