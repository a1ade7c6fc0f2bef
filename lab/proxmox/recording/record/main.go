// Command record makes the calls that the lab is compared by on a Proxmox VE API, and writes down the answers.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"talos-proxmox/lab/proxmox/recording"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	a := &recording.API{Poll: 100 * time.Millisecond, Settle: 15 * time.Second}

	flag.StringVar(&a.Endpoint, "endpoint", "", "https://HOST:8006 of the API")
	flag.StringVar(&a.Place.Node, "node", "", "its host, the first by default")
	flag.StringVar(&a.Place.Files, "files", "local", "a directory storage for ISOs and images to import")
	flag.StringVar(&a.Place.Images, "images", "local-lvm", "a directory storage for disks")
	flag.StringVar(&a.Place.Bridge, "bridge", "vmbr0", "a bridge of the host")

	file := flag.String("token", "", "a file with the token of root@pam; PROXMOX_VE_API_TOKEN by default")
	folder := flag.String("out", "recordings", "the folder of the recordings")
	among := flag.Bool("among-machines", false, "record although there are machines")
	remove := flag.Bool("remove", false, "only remove what an interrupted recording left")

	flag.Parse()

	a.Endpoint = strings.TrimSuffix(a.Endpoint, "/")
	a.Token = os.Getenv("PROXMOX_VE_API_TOKEN")

	if strings.Contains(*file, "=") { // arguments are visible to all users of this computer
		return errors.New("TOKEN names a file; a token itself goes into PROXMOX_VE_API_TOKEN")
	}

	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			return fmt.Errorf("unable to read the token: %w", err)
		}

		a.Token = string(text)
	}

	a.Token = strings.TrimPrefix(strings.TrimSpace(a.Token), "PVEAPIToken=")
	if a.Endpoint == "" || a.Token == "" {
		return errors.New("set ENDPOINT=https://HOST:8006, and the token: PROXMOX_VE_API_TOKEN, or TOKEN= with the name of its file")
	}

	//nolint:gosec // the caller's own choice, as for the provider
	config := &tls.Config{InsecureSkipVerify: cmp.Or(os.Getenv("PROXMOX_VE_INSECURE"), "false") == "true"}
	a.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}

	if *remove {
		return a.Remove(ctx)
	}

	r, err := a.Record(ctx, *among)
	if err != nil {
		return err
	}

	path := *folder + "/" + r.Version + ".json"
	if err := r.Write(path); err != nil {
		return err
	}

	fmt.Printf("%d answers of Proxmox VE %s are in %s\n", len(r.Answers), r.Version, path)

	return nil
}
