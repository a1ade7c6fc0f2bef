// Talosops builds talosops from this checkout and executes it. Resources in the states of stacks have the command `go
// run ./cmd/talosops`, for deletions too, and talosops is a Go module of its own, which `go run` cannot reach from this
// one.
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

// run returns only if it fails. `make tools` builds the same file, so an up-to-date program is not built again.
func run() error {
	program, err := filepath.Abs(filepath.Join(".bin", "talosops"))
	if err != nil {
		return fmt.Errorf("unable to find the project: %w", err)
	}

	// An update starts many of these at once: the first one builds, the others wait. The lock ends with this process.
	if err := os.MkdirAll(filepath.Dir(program), 0o750); err != nil {
		return fmt.Errorf("unable to create the folder of programs: %w", err)
	}

	lock, err := os.OpenFile(program+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("unable to wait for other builds: %w", err)
	}
	defer lock.Close() //nolint:errcheck // nothing is written

	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("unable to wait for other builds: %w", err)
	}

	//nolint:gosec // the project's own
	build := exec.Command("go", "build", "-C", "talosops", "-trimpath", "-ldflags", "-s -w", "-o", program, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr

	if err := build.Run(); err != nil {
		return fmt.Errorf("unable to build talosops: %w: run the same in the folder of the program", err)
	}

	//nolint:gosec // the project's own
	return fmt.Errorf("unable to start %s: %w", program, syscall.Exec(program, append([]string{program}, os.Args[1:]...),
		os.Environ()))
}
