package packagecmd

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// rotation are the flags of keys rotate.
type rotation struct {
	add, remove, replace, threshold []string
	online                          string
}

func newKeysRotate(remote Remote) *cobra.Command {
	var o rotation
	var root string
	var keys []string
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Create the next root file: other keys, thresholds, or a later expiry",
		Long: `Create the root after the newest one in the folder, valid for another year, with the
changes given by flags; ROLE is root or targets. A threshold of the old root keys must
sign it, and a threshold of the new ones. Hosts update root by root, however long they
were offline.

After a theft: replace a stolen root or targets key (alone, below the threshold, it is
useless to the thief). For a stolen server, set up a new one and pass its key with
--online-key. If the new root removes keys that signed the targets file, sign that file
again with renew and publish both files together.`,
		Example: `  muster package keys rotate --root release --replace targets=bob:ben.pub --key ann.key
  muster package keys rotate --root release --add root=eve.pub --threshold root=2
  muster package keys rotate --root release --online-key server --key ann.key --key bob.key`,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.add, "add", nil, "add a key, as ROLE=PUBLIC_KEY (a file or text)")
	f.StringArrayVar(&o.remove, "remove", nil, "remove a key, as ROLE=KEY (its name or the start of its id)")
	f.StringArrayVar(&o.replace, "replace", nil, "replace a key, as ROLE=KEY:PUBLIC_KEY")
	f.StringArrayVar(&o.threshold, "threshold", nil, "number of keys that must sign, as ROLE=N")
	f.StringVar(&o.online, "online-key", "", `public key of the server, as a file or as text, or "server" to ask the server for it`)
	f.StringVar(&root, "root", ".", "folder of your signed files, or the newest root file")
	f.StringArrayVar(&keys, "key", nil, "private key file to sign with; repeatable")
	password.addFlag(cmd)
	_ = cmd.MarkFlagFilename("key", "key")
	return reporting(cmd, func(cmd *cobra.Command, _ []string) (Signed, error) {
		return o.run(cmd, remote, root, keys, password)
	}, Signed.Human)
}

func (o rotation) run(cmd *cobra.Command, remote Remote, root string, keyFiles []string, password passwordSource) (Signed, error) {
	s, err := openPublisher(root)
	if err != nil {
		return Signed{}, err
	}
	newest := s.root()
	spec, err := tuf.SpecOf(newest)
	if err != nil {
		return Signed{}, err
	}
	if err := o.change(cmd, remote, &spec); err != nil {
		return Signed{}, err
	}
	spec.Expires = time.Now().Add(tuf.RootLife)
	file, err := tuf.NextRoot(newest, spec)
	if err != nil {
		return Signed{}, err
	}
	keys, err := readSigners(cmd, keyFiles, password)
	if err != nil {
		return Signed{}, err
	}
	if file, err = signWith(file, newest, keys); err != nil {
		return Signed{}, err
	}
	r, _, err := signedIn(s.dir, file, newest)
	if err != nil {
		return Signed{}, err
	}
	return r, writeSigned(r.File, file)
}

func (o rotation) change(cmd *cobra.Command, remote Remote, spec *tuf.RootSpec) error {
	for _, f := range []struct {
		flag   string
		values []string
		apply  func(flag string, s *tuf.Signers, value string) error
	}{
		{"--replace", o.replace, replaceKey},
		{"--remove", o.remove, removeKey},
		{"--add", o.add, addKey},
		{"--threshold", o.threshold, setThreshold},
	} {
		for _, v := range f.values {
			role, value, ok := strings.Cut(v, "=")
			signers := map[string]*tuf.Signers{"root": &spec.Root, "targets": &spec.Targets}[role]
			if !ok || signers == nil || value == "" {
				return fmt.Errorf("%s %s: want root=… or targets=…", f.flag, v)
			}
			if err := f.apply(f.flag+" "+v, signers, value); err != nil {
				return err
			}
		}
	}
	if o.online == "" {
		return nil
	}
	online, err := onlineKey(cmd.Context(), remote, o.online)
	if err != nil {
		return err
	}
	spec.Snapshot, spec.Timestamp = online, online
	return nil
}

func addKey(flag string, s *tuf.Signers, value string) error {
	k, err := readPublic(flag, value)
	if err != nil {
		return err
	}
	s.Keys = append(slices.Clone(s.Keys), k)
	return nil
}

func removeKey(flag string, s *tuf.Signers, value string) error {
	i, err := findKey(flag, s, value)
	if err == nil {
		s.Keys = slices.Delete(slices.Clone(s.Keys), i, i+1)
	}
	return err
}

func replaceKey(flag string, s *tuf.Signers, value string) error {
	old, public, ok := strings.Cut(value, ":")
	if !ok {
		return fmt.Errorf("%s: want KEY:PUBLIC_KEY, such as root=bob:ben.pub", flag)
	}
	if err := removeKey(flag, s, old); err != nil {
		return err
	}
	return addKey(flag, s, public)
}

func setThreshold(flag string, s *tuf.Signers, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s: want a number", flag)
	}
	s.Threshold = n
	return nil
}

// minIDPrefix is how many digits of a key's id name the key: fewer may match two keys of a
// root.
const minIDPrefix = 8

func findKey(flag string, s *tuf.Signers, value string) (int, error) {
	var found, labels []string
	at := -1
	for i, k := range s.Keys {
		labels = append(labels, k.Label())
		if k.Name == value || len(value) >= minIDPrefix && strings.HasPrefix(k.ID(), value) {
			found, at = append(found, k.Label()), i
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%s: is not one of the keys %s", flag, strings.Join(labels, ", "))
	case 1:
		return at, nil
	}
	return 0, fmt.Errorf("%s: matches several keys: %s: pass the id", flag, strings.Join(found, ", "))
}

func newKeysPublish(remote Remote) *cobra.Command {
	var published []string
	return reporting(&cobra.Command{
		Use:   "publish FILE…",
		Short: "Upload signed root and targets files to the server",
		Long: `Upload files with enough signatures to the server, which accepts all of them or none, and
refuses those that hosts would refuse. To restore a server, publish all root files and
the newest targets file.`,
		Example: `  muster package keys publish release/1.root.json
  muster package keys publish release/2.root.json release/5.targets.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no signed file is named")
			}
			return nil
		},
	}, func(cmd *cobra.Command, args []string) (map[string]string, error) {
		var files [][]byte
		for _, path := range args {
			f, err := readSignedFile(path)
			if err != nil {
				return nil, err
			}
			files = append(files, f.data)
		}
		published = args
		trustRoot, err := remote.Publish(cmd.Context(), files...)
		return map[string]string{"trust_root": trustRoot}, err
	}, func(r map[string]string, w io.Writer) {
		fmt.Fprintf(w, "published %s\n  new hosts trust it with --trust-root %s\n", strings.Join(published, ", "), r["trust_root"])
	})
}

func newKeysFetch(remote Remote) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Download the server's root and targets files into your folder",
		Long: `Download the server's roots after the newest one in the folder, and its targets file, and
verify their signatures. In a folder without a root, pass the digest of the first root to
trust with --trust-root. Get the digest from a colleague, not from the server.`,
		Example: `  muster package keys fetch --root release
  muster package keys fetch --root release --trust-root sha256:5f2a…`,
	}
	root := cmd.Flags().String("root", ".", "folder of your signed files")
	digest := cmd.Flags().String("trust-root", "", "digest of the first root to trust, sha256:…")
	_ = cmd.MarkFlagDirname("root")
	return reporting(cmd, func(cmd *cobra.Command, _ []string) (map[string][]string, error) {
		names, err := fetchFiles(cmd, remote, *root, *digest)
		return map[string][]string{"files": names}, err
	}, func(r map[string][]string, w io.Writer) {
		for _, name := range r["files"] {
			fmt.Fprintln(w, filepath.Join(*root, name))
		}
		if len(r["files"]) == 0 {
			fmt.Fprintln(w, "nothing new")
		}
	})
}

func fetchFiles(cmd *cobra.Command, remote Remote, dir, digest string) ([]string, error) {
	if digest != "" {
		if err := tuf.CheckDigest(digest); err != nil {
			return nil, fmt.Errorf("--trust-root: %w", err)
		}
	}
	s, err := openMetadataDir(dir)
	if err != nil {
		return nil, err
	}
	if s.single {
		return nil, fmt.Errorf("--root %s: is a file, want a folder to write to", dir)
	}
	files, err := remote.Files(cmd.Context())
	if err != nil {
		return nil, err
	}
	names := []string{}
	if s.root() == nil && digest != "" {
		i := slices.IndexFunc(files, func(f []byte) bool { return tuf.Digest(f) == digest })
		if i < 0 {
			return nil, fmt.Errorf("--trust-root: none of the server's files has this digest: compare it with your colleague's, and check the server's URL: %w", tuf.ErrDigest)
		}
		info, err := tuf.Inspect(files[i])
		if err != nil {
			return nil, err
		}
		s.roots = [][]byte{files[i]}
		if err := s.save([]tuf.File{{Name: info.FileName, Data: files[i]}}); err != nil {
			return nil, err
		}
		names = append(names, info.FileName)
	}
	fresh, err := s.update(files)
	if err != nil {
		return nil, err
	}
	for _, f := range fresh {
		names = append(names, f.Name)
	}
	return names, s.save(fresh)
}
