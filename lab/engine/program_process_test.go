package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/stacks"
)

// programVariable makes a test binary run as the program, for a language host of the tests.
const programVariable = "LAB_PROGRAM_TALOSOPS"

// runAsProgram runs the program if this process was started for it, and exits.
func runAsProgram() {
	path, ok := os.LookupEnv(programVariable)
	if !ok {
		return
	}

	stacks.Run(stacks.Program{TalosOps: path}.Deploy)
	os.Exit(0)
}

// languagePlugin is the name by which engines find the language host for Go.
const languagePlugin = "pulumi-language-go"

// runAsLanguageHost serves a language host without a program, if the test binary has its name: `pulumi import` loads
// the language host of a project, and does not call it.
func runAsLanguageHost() {
	if filepath.Base(os.Args[0]) != languagePlugin {
		return
	}

	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{Init: func(server *grpc.Server) error {
		pulumirpc.RegisterLanguageRuntimeServer(server, &languageHost{})

		return nil
	}})
	if err == nil {
		fmt.Println(handle.Port)

		err = <-handle.Done
	}

	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// putLanguageHostOnPath makes a language host available to the user's own commands.
func (w *world) putLanguageHostOnPath() {
	w.t.Helper()

	program, err := os.Executable()
	require.NoError(w.t, err)

	folder := w.t.TempDir()
	require.NoError(w.t, os.Symlink(program, filepath.Join(folder, languagePlugin)))
	w.path = folder + string(filepath.ListSeparator) + os.Getenv("PATH")
}

// languageHost runs the program in its own process, as Pulumi's language host for Go does: it can be killed.
type languageHost struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	w       *world
	ca      string
	address string

	mu      sync.Mutex
	program *os.Process
}

// newLanguageHost starts a language host for a world.
func (w *world) newLanguageHost() *languageHost {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	listener, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)

	h := &languageHost{w: w, ca: connection.CA, address: listener.Addr().String()}
	server := grpc.NewServer()
	pulumirpc.RegisterLanguageRuntimeServer(server, h)

	go func() { _ = server.Serve(listener) }()

	w.t.Cleanup(server.Stop)

	return h
}

// use makes the runs of the world start their program as a process, until the returned function is called.
func (h *languageHost) use() (reset func()) {
	h.w.t.Helper()

	cli := h.w.options.CLI
	path := filepath.Join(h.w.dir, "pulumi.sh")
	script := fmt.Sprintf(`#!/bin/sh
for a do
  shift
  case $a in --client=*) a=--client=%s;; esac
  set -- "$@" "$a"
done
exec %s "$@"
`, h.address, cli.Path)
	scripttest.Program(h.w.t, path, script)

	h.w.options.CLI.Path = path

	return func() { h.w.options.CLI = cli }
}

// Run implements the language host.
func (h *languageHost) Run(ctx context.Context, in *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	config, err := json.Marshal(in.GetConfig())
	if err != nil {
		return nil, err
	}

	keys, err := json.Marshal(in.GetConfigSecretKeys())
	if err != nil {
		return nil, err
	}

	cmd := exec.CommandContext(ctx, self) //nolint:gosec // this test
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(h.w.dir, "work"), h.w, h.w
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+h.ca, programVariable+"="+h.w.options.TalosOps,
		pulumi.EnvMonitor+"="+in.GetMonitorAddress(), pulumi.EnvEngine+"="+in.GetArgs()[0],
		pulumi.EnvOrganization+"="+in.GetOrganization(), pulumi.EnvProject+"="+in.GetProject(),
		pulumi.EnvStack+"="+in.GetStack(), pulumi.EnvConfig+"="+string(config),
		pulumi.EnvConfigSecretKeys+"="+string(keys), pulumi.EnvDryRun+"="+strconv.FormatBool(in.GetDryRun()),
		pulumi.EnvParallel+"="+strconv.Itoa(int(in.GetParallel())),
	)

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	h.mu.Lock()
	h.program = cmd.Process
	h.mu.Unlock()

	err = cmd.Wait()

	h.mu.Lock()
	h.program = nil
	h.mu.Unlock()

	if err != nil {
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("program ended: %s", err)}, nil
	}

	return &pulumirpc.RunResponse{}, nil
}

// kill kills the program; false if it does not run.
func (h *languageHost) kill() bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.program != nil && !errors.Is(h.program.Signal(syscall.SIGKILL), os.ErrProcessDone)
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
