package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/pkg/sftp"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// copyToRemote is remote:CopyToRemote.
type copyToRemote struct{}

type copyArgs struct {
	Connection *connection          `pulumi:"connection" provider:"secret"`
	Triggers   *[]any               `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Source     types.AssetOrArchive `pulumi:"source"`
	RemotePath string               `pulumi:"remotePath"`
}

type copyState struct{ copyArgs }

// Annotate gives the resource its published token.
func (c *copyToRemote) Annotate(a infer.Annotator) { a.SetToken("remote", "CopyToRemote") }

// Check wants a source.
func (c *copyToRemote) Check(ctx context.Context, request infer.CheckRequest) (infer.CheckResponse[copyArgs], error) {
	args, failures, err := infer.DefaultCheck[copyArgs](ctx, request.NewInputs)

	source, stated := request.NewInputs.GetOk("source")
	unknown := stated && source.IsComputed()

	if err == nil && !unknown && args.Source.Asset == nil && args.Source.Archive == nil {
		failures = append(failures, p.CheckFailure{Property: "source", Reason: "either asset or archive must be set"})
	}

	return infer.CheckResponse[copyArgs]{Inputs: args, Failures: failures}, err
}

// Create copies the source.
func (c *copyToRemote) Create(
	ctx context.Context, request infer.CreateRequest[copyArgs],
) (infer.CreateResponse[copyState], error) {
	response := infer.CreateResponse[copyState]{Output: copyState{request.Inputs}}
	if request.DryRun {
		return response, nil
	}

	id, err := resource.NewUniqueHex("", 8, 0)
	if err != nil {
		return response, err
	}

	response.ID = id

	return response, request.Inputs.copy(ctx)
}

// Update copies again when the content or the destination has changed.
func (c *copyToRemote) Update(
	ctx context.Context, request infer.UpdateRequest[copyArgs, copyState],
) (infer.UpdateResponse[copyState], error) {
	response := infer.UpdateResponse[copyState]{Output: copyState{request.Inputs}}
	if request.DryRun || (request.Inputs.hash() == request.State.hash() &&
		request.Inputs.RemotePath == request.State.RemotePath) {
		return response, nil
	}

	return response, request.Inputs.copy(ctx)
}

func (a copyArgs) hash() string {
	switch {
	case a.Source.Archive != nil:
		return a.Source.Archive.Hash
	case a.Source.Asset != nil:
		return a.Source.Asset.Hash
	default:
		return ""
	}
}

func (a copyArgs) copy(ctx context.Context) error {
	client, closing, err := a.Connection.dial(ctx)
	if err != nil {
		return err
	}
	defer closing()

	stop := context.AfterFunc(ctx, closing)
	defer stop()

	files, err := sftp.NewClient(client)
	if err != nil {
		return fmt.Errorf(
			"start SFTP on %s: %w: check that its SSH server offers the sftp subsystem", a.Connection.address(), err,
		)
	}
	defer files.Close() //nolint:errcheck

	if a.Source.Archive != nil {
		err = a.copyArchive(files)
	} else {
		err = a.copyAsset(files)
	}

	if err != nil {
		return fmt.Errorf("copy to %s:%s: %w", a.Connection.address(), a.RemotePath, err)
	}

	return nil
}

// copyAsset writes one file: into remotePath where that is a folder and the source has a name, else at remotePath.
func (a copyArgs) copyAsset(files *sftp.Client) error {
	destination := a.RemotePath

	info, err := files.Stat(destination)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if err == nil && info.IsDir() {
		if !a.Source.Asset.IsPath() {
			return errors.New("the remote path is a directory: for a text asset it must be the path of a file")
		}

		destination = path.Join(destination, path.Base(a.Source.Asset.Path))
	}

	content, err := a.Source.Asset.Read()
	if err != nil {
		return err
	}
	defer content.Close() //nolint:errcheck

	return writeFile(files, destination, content)
}

// copyArchive writes a folder (its own name below remotePath, unless it ends with a slash) or the members of an archive
// made of assets.
func (a copyArgs) copyArchive(files *sftp.Client) error {
	if folder := a.Source.Archive.Path; folder != "" {
		return a.copyPath(files, folder)
	}

	reader, err := a.Source.Archive.Open()
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck

	for {
		name, content, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		err = writeFile(files, path.Join(a.RemotePath, name), content)
		_ = content.Close()

		if err != nil {
			return err
		}
	}
}

func (a copyArgs) copyPath(files *sftp.Client, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}

	destination := a.RemotePath

	if !info.IsDir() {
		if remote, err := files.Stat(destination); err == nil && remote.IsDir() {
			destination = path.Join(destination, path.Base(source))
		}

		return copyFile(files, os.DirFS(path.Dir(source)), path.Base(source), destination)
	}

	if source[len(source)-1] != '/' {
		destination = path.Join(destination, path.Base(source))
	}

	tree := os.DirFS(source)

	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return files.MkdirAll(path.Join(destination, name))
		default:
			return copyFile(files, tree, name, path.Join(destination, name))
		}
	})
}

func copyFile(files *sftp.Client, tree fs.FS, name, destination string) error {
	content, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer content.Close() //nolint:errcheck

	return writeFile(files, destination, content)
}

func writeFile(files *sftp.Client, destination string, content io.Reader) error {
	if err := files.MkdirAll(path.Dir(destination)); err != nil {
		return fmt.Errorf("make the folder of %s: %w", destination, err)
	}

	remote, err := files.Create(destination)
	if err != nil {
		return fmt.Errorf("make %s: %w", destination, err)
	}

	if _, err := remote.ReadFrom(content); err != nil {
		_ = remote.Close()

		return fmt.Errorf("write %s: %w", destination, err)
	}

	return remote.Close()
}
