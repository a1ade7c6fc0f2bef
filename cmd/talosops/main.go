// Talosops builds the talosops of this checkout and becomes it. The states of stacks have `go run ./cmd/talosops` as
// the command of their resources, deletions included, and the sources of talosops are a module of their own, which `go
// run` does not reach from this one.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

func main() {
	fmt.Fprintf(os.Stderr, "talosops: %v\n", run())
	os.Exit(1)
}

// run returns only an error. What `make tools` builds is the same file: nothing is built where it is new enough.
func run() error {
	program, err := filepath.Abs(filepath.Join(".bin", "talosops"))
	if err != nil {
		return fmt.Errorf("unable to find the project: %w", err)
	}

	// An update starts many at once: the first builds, the others wait for it. The lock ends as this program does.
	if err := os.MkdirAll(filepath.Dir(program), 0o750); err != nil {
		return fmt.Errorf("unable to make the folder of programs: %w", err)
	}

	lock, err := os.OpenFile(program+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("unable to wait for other builds: %w", err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written

	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("unable to wait for other builds: %w", err)
	}

	//nolint:gosec // the project's own
	build := exec.Command("go", "build", "-C", "talosops", "-ldflags", "-s -w", "-o", program, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr

	if err := build.Run(); err != nil {
		return fmt.Errorf("unable to build talosops: %w: run the same in the folder of the program", err)
	}

	//nolint:gosec // the project's own
	return fmt.Errorf("unable to start %s: %w", program, syscall.Exec(program, append([]string{program}, os.Args[1:]...),
		os.Environ()))
}
