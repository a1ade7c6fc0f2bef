// Package handover passes texts with secrets from a running program to the commands that the engine runs for it. The
// inputs of a command are in the state, which would hold these texts twice; a listener of the program is not.
package handover

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// timeout limits a handover, which is local and small.
const timeout = 10 * time.Second

// Lengths of the parts of a socket's name, which keep its path below the limit of every system, also in the long
// temporary folders of macOS.
const (
	keyLength    = 20
	randomLength = 8
)

// Offer hands a text to whoever asks for it by its key, until it is closed. Keys have to be secrets: whoever runs
// programs as this user and knows the key gets the text.
func Offer(key, text string) (io.Closer, error) {
	prefix, err := pathOf(key)
	if err != nil {
		return nil, err
	}

	removeDead.Do(func() { removeDeadIn(filepath.Dir(prefix)) })

	path := prefix + rand.Text()[:randomLength] // two runs may offer the same

	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("unable to listen for talosops; set TMPDIR to a folder on a local disk: %w", err)
	}

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil { // it is closed
				return
			}

			_ = conn.SetDeadline(time.Now().Add(timeout))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()

	return listener, nil
}

// removeDead removes, once a program, what runs that were killed have left.
var removeDead sync.Once

// deadAfter is the age from which a socket that nobody answers is not one that is just being made.
const deadAfter = time.Minute

func removeDeadIn(folder string) {
	sockets, _ := os.ReadDir(folder) // it is only tidied up

	for _, socket := range sockets {
		info, err := socket.Info()
		if err != nil || time.Since(info.ModTime()) < deadAfter {
			continue
		}

		path := filepath.Join(folder, socket.Name())

		conn, err := net.DialTimeout("unix", path, timeout)
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// Take returns the text that a running program offers for a key.
func Take(key string) (string, error) {
	prefix, err := pathOf(key)
	if err != nil {
		return "", err
	}

	offers, err := filepath.Glob(prefix + "*")
	if err != nil {
		return "", fmt.Errorf("unable to read the folder of sockets: %w", err)
	}

	failed := fmt.Errorf("the program that wrote the request does not run any more, or with another TMPDIR than %s",
		os.TempDir())

	for _, path := range offers {
		text, err := read(path)
		if err == nil {
			return text, nil
		}

		failed = errors.Join(failed, err)
	}

	return "", failed
}

func read(path string) (string, error) {
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // only read

	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}

	text, err := io.ReadAll(conn)
	if err == nil && len(text) == 0 {
		err = errors.New("the program ended")
	}

	return string(text), err
}

// pathOf returns the beginning of paths for a key, in a folder that only this user can read.
func pathOf(key string) (string, error) {
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("talos-proxmox-%d", os.Getuid()))
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("unable to create the folder of sockets: %w", err)
	}

	info, err := os.Lstat(folder)
	if err != nil {
		return "", fmt.Errorf("unable to read the folder of sockets: %w", err)
	}

	owner, known := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !known || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf(
			"%s is not a folder that only this user can read: remove it, or set TMPDIR to a folder of yours", folder)
	}

	digest := sha256.Sum256([]byte(key))

	return filepath.Join(folder, hex.EncodeToString(digest[:])[:keyLength]), nil
}
