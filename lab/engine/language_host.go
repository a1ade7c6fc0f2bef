package engine

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/stacks"
)

// languageHost runs a program in this process. The Automation API's own lets the engine print what a failed program
// returns, in a frame; this one lets the program print it, as a program in its own process does ([stacks.Run]).
type languageHost struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	program pulumi.RunFunc
}

// serve starts the host on loopback; stop ends it.
func (h *languageHost) serve() (address string, stop func(), err error) {
	cancel := make(chan bool)

	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{Cancel: cancel, Init: func(server *grpc.Server) error {
		pulumirpc.RegisterLanguageRuntimeServer(server, h)

		return nil
	}})
	if err != nil {
		return "", nil, fmt.Errorf("unable to serve the program to the engine: %w", err)
	}

	return fmt.Sprintf("127.0.0.1:%d", handle.Port), func() {
		close(cancel)
		<-handle.Done //nolint:errcheck // the server has ended either way
	}, nil
}

// Run implements the language host.
func (h *languageHost) Run(ctx context.Context, in *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	run, err := pulumi.NewContext(ctx, pulumi.RunInfo{
		EngineAddr:       in.GetArgs()[0],
		MonitorAddr:      in.GetMonitorAddress(),
		Config:           in.GetConfig(),
		ConfigSecretKeys: in.GetConfigSecretKeys(),
		Project:          in.GetProject(),
		Stack:            in.GetStack(),
		Parallel:         in.GetParallel(),
		DryRun:           in.GetDryRun(),
		Organization:     in.GetOrganization(),
	})
	if err != nil {
		return nil, fmt.Errorf("unable to reach the engine: %w", err)
	}
	defer run.Close() //nolint:errcheck // every problem has been reported

	var ending talosopsexec.Ending

	failure := pulumi.RunWithContext(run, func(ctx *pulumi.Context) error {
		return h.program(talosopsexec.WithEnding(ctx, &ending))
	})
	if failure == nil {
		failure = awaitShutdown(ctx, in.GetMonitorAddress())
	}

	err = stacks.End(&ending, failure, func(do func(*pulumi.Context) error) error { return do(run) })

	return &pulumirpc.RunResponse{Bail: failure != nil}, err
}

// awaitShutdown waits until the engine has done all steps, as [pulumi.RunErr] does.
func awaitShutdown(ctx context.Context, monitor string) error {
	conn, err := grpc.NewClient(monitor, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("unable to reach the engine: %w", err)
	}
	defer conn.Close()

	if _, err := pulumirpc.NewResourceMonitorClient(conn).SignalAndWaitForShutdown(ctx, &emptypb.Empty{}); err != nil {
		return fmt.Errorf("unable to wait for the engine: %w", err)
	}

	return nil
}

// GetPluginInfo implements the language host.
func (*languageHost) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: "1.0.0"}, nil
}

// GetRequiredPlugins implements the language host.
func (*languageHost) GetRequiredPlugins(
	context.Context, *pulumirpc.GetRequiredPluginsRequest,
) (*pulumirpc.GetRequiredPluginsResponse, error) {
	return &pulumirpc.GetRequiredPluginsResponse{}, nil
}
