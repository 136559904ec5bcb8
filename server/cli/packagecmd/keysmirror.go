package packagecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// mirrorOptions are the flags of keys mirror.
type mirrorOptions struct {
	root, out, onlineKey string
	password             passwordSource
}

func newKeysMirror(remote Remote) *cobra.Command {
	var o mirrorOptions
	cmd := &cobra.Command{
		Use:   "mirror --out DIR",
		Short: "Copy the signed metadata into a folder, for hosts without a server of Muster's",
		Long: `Write all files of the signed metadata into the folder of the packages. Hosts without a
network install a package from that folder with --trust-root, and hosts at a Fleet Server
load packages from it. The files are verified as hosts verify them.

The server signs every few hours that the files are current, so hosts accept a copy for at
most a day. Run this command several times a day for a folder that hosts load from. Without
a server of Muster's, --online-key names the private key that signs the files here. Its
public key is the one that was given to keys init.`,
		Example: `  muster package keys mirror --root release --out /media/stick/packages
  muster package keys mirror --root release --out /srv/packages --online-key online.key`,
	}
	f := cmd.Flags()
	f.StringVar(&o.root, "root", ".", "folder of your signed files")
	f.StringVar(&o.out, "out", "", "folder to write to")
	f.StringVar(&o.onlineKey, "online-key", "", "private key file that signs snapshot and timestamp, instead of a server")
	o.password.addFlag(cmd)
	_ = cmd.MarkFlagDirname("root")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.MarkFlagFilename("online-key", "key")
	return reporting(cmd, func(cmd *cobra.Command, _ []string) (map[string][]string, error) {
		names, err := o.run(cmd, remote)
		return map[string][]string{"files": names}, err
	}, func(written map[string][]string, w io.Writer) {
		for _, name := range written["files"] {
			fmt.Fprintln(w, filepath.Join(o.out, name))
		}
	})
}

func (o mirrorOptions) run(cmd *cobra.Command, remote Remote) ([]string, error) {
	if o.out == "" {
		return nil, hinted(errors.New("--out is missing"), "muster package keys mirror --out DIR")
	}
	s, err := openPublisher(o.root)
	if err != nil {
		return nil, err
	}
	repository, err := o.repository(cmd, remote, s)
	if err != nil {
		return nil, err
	}
	if repository.Targets == nil {
		return nil, hinted(errors.New("the publishers have signed no package yet"), "muster package push ARCHIVE --targets-key KEY, or add with --offline")
	}
	if err := repository.Verify(time.Now()); err != nil {
		return nil, err
	}
	files, err := tuf.Changes(tuf.Repository{}, repository)
	if err != nil {
		return nil, err
	}
	if err := (disk.OS{}).MkdirAll("mirror", o.out, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files { // the timestamp, which names the others, comes last
		if err := writeSigned(filepath.Join(o.out, f.Name), f.Data); err != nil {
			return nil, err
		}
		names = append(names, f.Name)
	}
	return names, nil
}

// repository returns the server's files, or those of the folder with snapshot and timestamp
// signed here.
func (o mirrorOptions) repository(cmd *cobra.Command, remote Remote, s *metadataDir) (tuf.Repository, error) {
	if o.onlineKey == "" {
		return mirrored(cmd.Context(), remote, s)
	}
	key, err := readSigner(cmd, o.onlineKey, o.password)
	if err != nil {
		return tuf.Repository{}, err
	}
	return tuf.Online{key}.Sign(tuf.Repository{Roots: s.roots, Targets: s.targets}, time.Now())
}

// mirrored returns the server's files. It first updates the folder, which refuses roots and
// targets that the publishers have not signed. The newest root must be the folder's.
func mirrored(ctx context.Context, remote Remote, s *metadataDir) (tuf.Repository, error) {
	files, err := remote.Files(ctx)
	if err != nil {
		return tuf.Repository{}, err
	}
	fresh, err := s.update(files)
	if err == nil {
		err = s.save(fresh)
	}
	if err != nil {
		return tuf.Repository{}, err
	}
	repository, err := tuf.NewRepository(files...)
	if err == nil && !bytes.Equal(repository.Root(), s.root()) {
		err = hinted(fmt.Errorf("the server's newest root is not the one in %s", s.dir), "muster package keys publish, or check the server's URL")
	}
	return repository, err
}
