// Package process runs programs that are killed with their owner: a machine that is switched off, or the lab.
package process

import (
	"context"
	"os/exec"
	"runtime"
	"syscall"
)

// Run starts a program, calls started, and waits for its end. The end of the context kills it, and so does the end of
// this process. The error is that of [exec.Cmd.Start] or [exec.Cmd.Wait].
func Run(ctx context.Context, c *exec.Cmd, started func()) error {
	// With Pdeathsig, the kernel kills the process when the thread that started it ends, so the thread is kept.
	runtime.LockOSThread()

	defer runtime.UnlockOSThread()

	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	if err := c.Start(); err != nil {
		return err
	}

	started()

	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer stop()

	return c.Wait()
}
