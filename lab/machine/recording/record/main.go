// Command record makes the calls with which the lab is compared on a machine of real Talos, and writes the answers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"talos-proxmox/lab/machine/recording"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	api := flag.String("api", "", "HOST:PORT of a machine in maintenance mode")
	address := flag.String("address", "", "the machine's own address")
	version := flag.String("version", "", "its Talos, such as v1.12.6")

	flag.Parse()

	if err := record(ctx, *api, *address, *version); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, api, address, version string) error {
	m, err := recording.New(api, address, version)
	if err != nil {
		return err
	}

	r, err := m.Record(ctx)
	if err != nil { // keeps an earlier recording
		return err
	}

	return r.Write("recordings/" + version + ".yaml")
}
