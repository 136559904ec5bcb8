package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-fleet/muster/server/store"
)

// Compared is the result of comparing a noun in two stores.
type Compared struct {
	Noun       string `json:"noun"`
	From       int    `json:"from"`
	To         int    `json:"to"`
	FromDigest string `json:"from_digest"`
	ToDigest   string `json:"to_digest"`
	// Differs is the first id, in byte order, whose document differs or exists in only one
	// store. It is empty if there is none.
	Differs string `json:"differs,omitempty"`

	forgotten bool // a kind that this version does not know: nothing was copied or compared
}

// Same reports whether both stores have the same documents.
func (c Compared) Same() bool { return !c.forgotten && c.From == c.To && c.FromDigest == c.ToDigest }

// digest identifies a set of documents, in any order: it is their count and the sum of their
// SHA-256 modulo 2^256. Unlike with exclusive or, a repeated document changes the sum.
type digest struct {
	count int
	sum   [4]uint64
}

func (d *digest) add(hash [sha256.Size]byte) {
	d.count++
	var carry uint64
	for i := range d.sum {
		n := binary.LittleEndian.Uint64(hash[8*i:])
		sum := d.sum[i] + n
		over := sum < n
		sum += carry
		if over || sum < carry {
			d.sum[i], carry = sum, 1
			continue
		}
		d.sum[i], carry = sum, 0
	}
}

func (d *digest) String() string {
	var b []byte
	for _, n := range d.sum {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return hex.EncodeToString(b)
}

// hashes calls f with the SHA-256 of every document of a noun: of its position, its id and
// its JSON.
func (n noun) hashes(ctx context.Context, s store.Store, since int64, f func(id string, hash [sha256.Size]byte)) error {
	var broken error
	err := n.each(ctx, s, since, func(id string, position int, v any) {
		b, err := canonical(v)
		if err != nil {
			broken = fmt.Errorf("%s: %w", id, err)
		}
		head := binary.AppendUvarint(nil, uint64(position))
		head = binary.AppendUvarint(head, uint64(len(id)))
		f(id, sha256.Sum256(append(append(head, id...), b...)))
	})
	return cmp.Or(err, broken)
}

// Verify reads both stores completely and compares them noun by noun. Neither may be written
// to meanwhile. A difference is not an error; see Compared.Same. Documents of kinds that Copy
// does not know are found by counting what the stores have: such a kind differs.
func Verify(ctx context.Context, from, to store.Store, report func(Step)) ([]Compared, error) {
	var out []Compared
	for _, n := range nouns {
		one, err := n.verify(ctx, from, to, report)
		if err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		out = append(out, one)
	}
	forgotten, err := forgotten(ctx, from, to)
	return append(out, forgotten...), err
}

// forgotten returns the kinds that a store has documents of, and that are not in store.Kinds.
func forgotten(ctx context.Context, from, to store.Store) ([]Compared, error) {
	source, err := from.Contents(ctx)
	if err != nil {
		return nil, err
	}
	destination, err := to.Contents(ctx)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(source)
	maps.Copy(names, destination)
	for _, kind := range store.Kinds() {
		delete(names, kind.Name)
	}
	var out []Compared
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, Compared{Noun: name, From: source[name], To: destination[name], FromDigest: new(digest).String(), ToDigest: new(digest).String(), Differs: "a document of a kind that this version does not know", forgotten: true})
	}
	return out, nil
}

// reportEvery is how many documents are read between two reports.
const reportEvery = 1_000

func (n noun) verify(ctx context.Context, from, to store.Store, report func(Step)) (Compared, error) {
	since := int64(0)
	if n.since != nil {
		var err error
		if since, err = n.since(ctx, from); err != nil {
			return Compared{}, err
		}
	}
	done := 0 // in both stores
	read := func(s store.Store) (d digest, err error) {
		err = retry(ctx, func() error {
			d = digest{}
			return n.hashes(ctx, s, since, func(_ string, hash [sha256.Size]byte) {
				d.add(hash)
				if done++; done%reportEvery == 0 {
					report(Step{Noun: n.name, Done: done})
				}
			})
		})
		return d, err
	}
	a, err := read(from)
	if err != nil {
		return Compared{}, err
	}
	b, err := read(to)
	if err != nil {
		return Compared{}, err
	}
	out := Compared{Noun: n.name, From: a.count, To: b.count, FromDigest: a.String(), ToDigest: b.String()}
	if !out.Same() {
		out.Differs, err = n.firstDiffering(ctx, from, to, since)
	}
	report(Step{Noun: n.name, Done: b.count, Total: b.count, Ended: true})
	return out, err
}

// firstDiffering returns Compared.Differs. It holds the hashes of all documents in memory,
// so it is called only after the digests have differed.
func (n noun) firstDiffering(ctx context.Context, from, to store.Store, since int64) (string, error) {
	hashes := map[string][sha256.Size]byte{}
	err := n.hashes(ctx, to, since, func(id string, hash [sha256.Size]byte) { hashes[id] = hash })
	if err != nil {
		return "", err
	}
	first := ""
	note := func(id string) {
		if first == "" || id < first {
			first = id
		}
	}
	err = n.hashes(ctx, from, since, func(id string, hash [sha256.Size]byte) {
		if hashes[id] != hash {
			note(id)
		}
		delete(hashes, id)
	})
	for id := range hashes {
		note(id)
	}
	return first, err
}

// Count returns, in Copied.Read, how many documents of each noun Copy would read.
func Count(ctx context.Context, s store.Store) ([]Copied, error) {
	var out []Copied
	for _, n := range nouns {
		one := Copied{Noun: n.name}
		if err := n.each(ctx, s, 0, func(string, int, any) { one.Read++ }); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		out = append(out, one)
	}
	return out, nil
}
