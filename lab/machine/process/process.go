// Package process starts programs that end with what they belong to: a machine that is switched off, or the lab.
package process

import (
	"context"
	"os/exec"
	"runtime"
	"syscall"
)

// Run starts a program, says so, and waits for its end. The end of the context kills it, and so does the end of this
// process. The error is that of [exec.Cmd.Start] or [exec.Cmd.Wait].
func Run(ctx context.Context, c *exec.Cmd, started func()) error {
	// The kernel kills the process with the thread that started it: the thread must live as long, and is not given to
	// anybody else meanwhile.
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
