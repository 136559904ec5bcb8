package packagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
)

// Remote is the server, as far as publishers need one. Nothing it says is
// believed without signatures.
type Remote interface {
	// OnlineKeys are its public keys, the one for new roots first.
	OnlineKeys(ctx context.Context) ([]tuf.PublicKey, error)
	// Files are all roots it has and its targets file.
	Files(ctx context.Context) ([][]byte, error)
	// Publish uploads signed files, all or none, and returns the digest that new
	// hosts pin.
	Publish(ctx context.Context, files ...[]byte) (trustRoot string, err error)
	// Show prints how the server's signed metadata stands.
	Show(ctx context.Context, w io.Writer, asJSON bool) error
}

// AddTrust adds the commands for the metadata that publishers sign.
func AddTrust(cmd *cobra.Command, remote Remote) {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "The publishers' keys, and the root and targets files they sign",
		Long: `Hosts that were enrolled with --trust-root believe The Update Framework's signed
files: root says whose keys sign what and how many of them must, targets says
which packages there are. People sign both, with keys that never lie on a server;
the server adds what proves that they are fresh. Whoever steals the server, or
fewer keys than needed, cannot make a host install anything.

The signed files are kept in one folder, without the private keys if you like:
the commands find there what to build on, and refuse an older state.`,
		Example: `  muster package keys init --dir release --root-keys 3 --root-threshold 2 --targets-keys 2
  muster package push muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key
  muster package keys show --server`,
	}
	keys.AddCommand(newKeysInit(remote), newKeysGenerate(), newKeysShow(remote), newKeysSign(), newKeysMerge(),
		newKeysRotate(remote), newKeysRenew(remote), newKeysPublish(remote), newKeysFetch(remote))
	cmd.AddCommand(keys, newAdd(remote), newFloor(remote))
}

// readSigner reads a private key that signs root or targets.
func readSigner(cmd *cobra.Command, file string, password passwordSource) (tuf.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return tuf.PrivateKey{}, hinted(err, "muster package keys init --dir DIR, or name the key with its folder")
	}
	if err != nil {
		return tuf.PrivateKey{}, err
	}
	var word string
	if tuf.NeedsPassword(data) {
		if word, err = password.read(cmd, "Password of "+file+": "); err != nil {
			return tuf.PrivateKey{}, err
		}
	}
	key, err := tuf.DecryptPrivateKey(word, data)
	if err != nil {
		return tuf.PrivateKey{}, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// readSigners reads all keys before anything is signed, so that a wrong password
// leaves nothing half done.
func readSigners(cmd *cobra.Command, files []string, password passwordSource) ([]tuf.PrivateKey, error) {
	var keys []tuf.PrivateKey
	for _, file := range files {
		k, err := readSigner(cmd, file, password)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// readPublic takes a public key as text, or as the name of a file that holds it.
func readPublic(flag, value string) (tuf.PublicKey, error) {
	text := value
	data, err := os.ReadFile(value)
	if err == nil {
		text = string(data)
	}
	k, perr := tuf.ParsePublicKey(text)
	if perr != nil && err != nil {
		return k, fmt.Errorf("%s %s: is neither a file that can be read (%w) nor a public key such as muster-tuf-ed25519 …", flag, value, err)
	}
	if perr != nil {
		return k, fmt.Errorf("%s %s: %w", flag, value, perr)
	}
	return k, nil
}

// fromServer is what --online-key says for: ask the server.
const fromServer = "server"

func onlineKey(ctx context.Context, remote Remote, value string) (tuf.PublicKey, error) {
	if value != fromServer {
		return readPublic("--online-key", value)
	}
	keys, err := remote.OnlineKeys(ctx)
	if err != nil {
		return tuf.PublicKey{}, hinted(fmt.Errorf("ask the server for its online key: %w", err), "log in with muster login, or give its public key with --online-key")
	}
	if len(keys) == 0 {
		return tuf.PublicKey{}, errors.New("the server holds no online key: update it")
	}
	return keys[0], nil
}

// newKeyFiles renders a private key and its public half for files, locked by a
// password unless there is none.
func newKeyFiles(key tuf.PrivateKey, password string) (private, public []byte, err error) {
	public = []byte(key.Public().String() + "\n")
	if password == "" {
		return tuf.UnsafePlainPrivateKey(key), public, nil
	}
	private, err = tuf.EncryptPrivateKey(password, key)
	return private, public, err
}

func pubFile(keyFile string) string { return strings.TrimSuffix(keyFile, ".key") + ".pub" }

func writeKey(keyFile string, key tuf.PrivateKey, password string) error {
	private, public, err := newKeyFiles(key, password)
	if err != nil {
		return err
	}
	d := disk.OS{}
	if err := disk.WriteFile(d, "write private key", keyFile, private, 0o600); err != nil {
		return err
	}
	if err := disk.WriteFile(d, "write public key", pubFile(keyFile), public, 0o644); err != nil {
		return errors.Join(err, d.Remove("write public key", keyFile))
	}
	return nil
}

func writeSigned(path string, data []byte) error {
	return disk.WriteFile(disk.OS{}, "write signed file", path, data, 0o644)
}

// notThere refuses to write over what may be the only copy.
func notThere(files ...string) error {
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return hinted(fmt.Errorf("%s exists: keys and roots are never written over", file), "another folder, or remove it first")
		}
	}
	return nil
}

// choosePassword asks for the password of new keys; it is empty with --no-password.
func choosePassword(cmd *cobra.Command, none bool, password passwordSource) (string, error) {
	switch {
	case none && password.file != "":
		return "", errors.New("--no-password and --password-file contradict each other: give one of them")
	case none:
		return "", nil
	}
	return password.readNew(cmd)
}
