package talosapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// Install has a machine of a release with the service for it write another image beside the one that runs. It returns
// once that is done; the machine runs on, and boots the new one when it is restarted.
func (t *Client) Install(ctx context.Context, address, installer string) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		name, err := pull(ctx, c, installer)
		if err != nil {
			return err
		}

		return runInstaller(ctx, c, name)
	})
}

// Where Talos keeps the images of its own, etcd's and the kubelet's among them.
func systemImages() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}
}

// pull has a machine get an image, and returns its name there.
func pull(ctx context.Context, c *client.Client, image string) (name string, err error) {
	stream, err := c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{
		Containerd: systemImages(), ImageRef: image,
	})
	if err != nil {
		return "", err //nolint:wrapcheck // ask says what it is
	}

	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}

		if err != nil {
			return "", err //nolint:wrapcheck // ask says what it is
		}

		name = cmp.Or(answer.GetName(), name)
	}
}

// runInstaller runs an installer that was pulled; its last words are the error of one that fails.
func runInstaller(ctx context.Context, c *client.Client, name string) error {
	stream, err := c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: systemImages(), Source: &machineapi.InstallArtifactsSource{ImageName: name},
	})
	if err != nil {
		return err //nolint:wrapcheck // ask says what it is
	}

	ended, last := false, ""

	for {
		answer, err := stream.Recv()

		switch {
		case errors.Is(err, io.EOF) && ended:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the installer did not say how it ended")
		case err != nil:
			return err //nolint:wrapcheck // ask says what it is
		}

		switch r := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			last = strings.TrimSpace(r.Message)
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			if ended = true; r.ExitCode != 0 {
				return fmt.Errorf("the installer ended with %d: %s", r.ExitCode, last)
			}
		}
	}
}

// Upgrade has a machine of a release without the service for installations install another image and boot it. It
// returns once the machine has the image and has judged it and etcd; that it is neither forced nor staged is the
// default.
func (t *Client) Upgrade(ctx context.Context, address, installer string, devices bool) error {
	mode := machineapi.UpgradeRequest_DEFAULT
	if devices {
		mode = machineapi.UpgradeRequest_POWERCYCLE
	}

	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.UpgradeWithOptions(ctx, client.WithUpgradeImage(installer), client.WithUpgradeRebootMode(mode))

		return err
	})
}

// Failures tells from now on why a sequence of a machine has failed, as its events say it, until the context ends or
// the machine stops telling.
func (t *Client) Failures(ctx context.Context, address string) <-chan string {
	told := make(chan string, 1)

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
					told <- event.GetError().GetMessage()
				}

				if r.Error != nil || event.GetError() != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	return told
}
