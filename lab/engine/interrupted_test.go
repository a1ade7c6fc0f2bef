package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/lab/datacentre"
	"proxmox-talos/lab/server"
)

// TestBrokenOffRuns breaks an up off at different moments, by an interrupt as Ctrl-C sends it and by killing the engine, and sees the next up finish the job.
func TestBrokenOffRuns(t *testing.T) {
	t.Parallel()

	moments := map[string]func(w *world) bool{
		"while templates are built": func(w *world) bool { return w.taskSeen("download") },
		"while nodes are cloned":    func(w *world) bool { return w.taskSeen("qmclone") },
		"while machines boot":       func(w *world) bool { return len(w.lab.Machines.Status()) > 1 },
		"after the bootstrap":       func(w *world) bool { return w.bootstrapped() },
	}

	ways := map[string]func(w *world, cancel context.CancelFunc){
		"interrupted": func(_ *world, cancel context.CancelFunc) { cancel() },
		"killed":      func(w *world, _ context.CancelFunc) { w.killEngine() },
	}

	for moment, reached := range moments {
		for way, breakOff := range ways {
			t.Run(way+" "+moment, func(t *testing.T) {
				t.Parallel()

				w := newWorld(t, testSpeed/4)
				w.traceable()

				s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()

				go func() {
					for !reached(w) && ctx.Err() == nil {
						time.Sleep(5 * time.Millisecond)
					}

					breakOff(w, cancel)
				}()

				_, _, err := w.tryUp(ctx, s.yaml(t))
				require.Error(t, err, "the run ended before it was broken off")

				w.up(s.yaml(t))
				assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-general-1": 3000, "one-general-2": 3001}, w.machines())
				w.requireRunning(3)

				w.up(s.yaml(t), optup.ExpectNoChanges())
				w.destroy(s.yaml(t))
				w.requireEmpty()
			})
		}
	}
}

// TestLabRestart stops the lab between two runs: the second one meets the first one's world.
func TestLabRestart(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	w.up(s.yaml(t))

	require.NoError(t, w.lab.Close())
	require.NoError(t, w.tryOpen(server.Options{Speed: testSpeed, Hosts: 2}))

	require.Eventually(t, func() bool {
		running := 0

		for _, m := range w.lab.Machines.Status() {
			if m.Stage == "running" {
				running++
			}
		}

		return running == 2
	}, within, 50*time.Millisecond)

	w.up(s.yaml(t), optup.ExpectNoChanges())
}

func (w *world) bootstrapped() bool {
	for _, m := range w.lab.Machines.Status() {
		if m.EtcdMember != "" {
			return true
		}
	}

	return false
}

func (w *world) taskSeen(kind string) bool {
	for _, task := range w.lab.Data.Tasks() {
		if strings.Contains(task.Type, kind) {
			return true
		}
	}

	return false
}

// traceable makes the engine's runs leave their process ids in the world's folder, for killEngine.
func (w *world) traceable() {
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %s\nexec %s \"$@\"\n", w.pidFile(), w.options.CLI)
	path := filepath.Join(w.dir, "pulumi.sh")
	require.NoError(w.t, os.WriteFile(path, []byte(script), 0o700))

	w.options.CLI = path
}

func (w *world) pidFile() string { return filepath.Join(w.dir, "pid") }

// killEngine kills the Pulumi CLI and the plugins that it has started at once, as a power cut would.
func (w *world) killEngine() {
	b, err := os.ReadFile(w.pidFile())
	if !assert.NoError(w.t, err) {
		return
	}

	pid := strings.TrimSpace(string(b))
	running := []string{pid}

	threads, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	assert.NoError(w.t, err)

	for _, thread := range threads {
		plugins, _ := os.ReadFile(thread) // a thread that has ended has none
		running = append(running, strings.Fields(string(plugins))...)
	}

	for _, process := range running {
		if id, err := strconv.Atoi(process); assert.NoError(w.t, err) {
			if err := syscall.Kill(id, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // it may have ended by itself
				assert.NoError(w.t, err)
			}
		}
	}
}

// cloneTries is how often clones are tried: a fault that hits less often is not seen by anybody.
const cloneTries = 2 * 3 // of two machines

// TestFailedTasks lets tasks of Proxmox fail under an up: the message says which machine and what Proxmox said, and the next up finishes the job.
func TestFailedTasks(t *testing.T) {
	t.Parallel()

	for task, reason := range map[string]string{
		"qmclone":  "no space left on device",
		"qmcreate": "unable to create VM: storage 'local-lvm' is not online",
		"download": "download failed: 503 Service Unavailable",
		"qmstart":  "start failed: QEMU exited with code 1",
	} {
		t.Run(task, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, testSpeed)
			s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}

			_, err := w.lab.Data.AddFault(datacentre.Fault{Task: task, Message: reason, Times: cloneTries})
			require.NoError(t, err)

			_, _, err = w.tryUp(t.Context(), s.yaml(t))
			require.Error(t, err)
			assert.Contains(t, w.said(), reason)

			require.NoError(t, w.lab.Data.ClearFaults())
			w.up(s.yaml(t), optup.Refresh()) // without it a machine that was made but did not start passes for a running one
			w.requireRunning(2)
			w.up(s.yaml(t), optup.ExpectNoChanges())
			w.destroy(s.yaml(t))
			w.requireEmpty()
		})
	}
}
