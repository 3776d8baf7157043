package workspace

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// leaf is a file in an index of git's, as it stands there. Its numbers are cut to
// 32 bits.
type leaf struct {
	stat   []byte // of the file when git wrote or read it last
	object []byte
	name   string
	plain  bool // no stage of a merge, and nothing special about it
}

// Where the numbers stand in leaf.stat.
const (
	atCtime, atMtime, atInode, atMode, atOwner, atSize = 0, 8, 20, 24, 28, 36

	statBytes = 40
)

var errIndex = errors.New("it is no index of a known version")

// leaves takes an index apart. hash is how many bytes an object's name has. What is
// done to a stat is done to raw.
func leaves(raw []byte, hash int) ([]leaf, error) {
	const header, extended = 12, 0x4000
	if len(raw) < header+hash || string(raw[:4]) != "DIRC" {
		return nil, errIndex
	}
	version, count := binary.BigEndian.Uint32(raw[4:]), int(binary.BigEndian.Uint32(raw[8:]))
	if version != 2 && version != 3 || !bytes.Equal(checksum(raw[:len(raw)-hash], hash), raw[len(raw)-hash:]) {
		return nil, errIndex
	}
	rest := raw[header : len(raw)-hash]
	least := statBytes + hash + 2
	all := make([]leaf, 0, min(count, len(rest)/least))
	for range count {
		if len(rest) < least {
			return nil, errIndex
		}
		flags, from := binary.BigEndian.Uint16(rest[least-2:]), least
		if flags&extended != 0 {
			from += 2
		}
		long := bytes.IndexByte(rest[min(from, len(rest)):], 0)
		end := (from + long + 8) &^ 7
		if long < 1 || end > len(rest) {
			return nil, errIndex
		}
		all = append(all, leaf{
			stat: rest[:statBytes:statBytes], object: rest[statBytes : statBytes+hash], name: string(rest[from : from+long]), plain: flags&0xf000 == 0,
		})
		rest = rest[end:]
	}
	return all, nil
}

// checksum is what stands at the end of an index.
func checksum(data []byte, hash int) []byte {
	if hash == sha256.Size {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data) //nolint:gosec // it is git's checksum
	return sum[:]
}

func (l leaf) at(i int) uint32      { return binary.BigEndian.Uint32(l.stat[i:]) }
func (l leaf) set(i int, to uint32) { binary.BigEndian.PutUint32(l.stat[i:], to) }
func (l leaf) entry() entry {
	return entry{mode: fmt.Sprintf("%06o", l.at(atMode)), object: hex.EncodeToString(l.object)}
}
func seconds(t unix.Timespec) uint32 { return low(t.Sec) }
func nanos(t unix.Timespec) uint32   { return low(t.Nsec) }

// low cuts a number as git does.
func low[T ~int32 | ~int64 | ~uint64](n T) uint32 { return uint32(n) }

// written tells whether a file is the one that was checked out, and was not written
// since. Its owner may be another.
func (l leaf) written(st *unix.Stat_t) bool {
	return l.at(atMtime) == seconds(st.Mtim) && l.at(atMtime+4) == nanos(st.Mtim) &&
		l.at(atInode) == low(st.Ino) && l.at(atSize) == low(st.Size) &&
		l.at(atMode)&unix.S_IFMT == uint32(st.Mode)&unix.S_IFMT //nolint:unconvert // of 16 bits elsewhere
}

// untouched tells whether nothing at all was done to a file since: no user can set
// the time of a change. A file system that counts in seconds does not say enough.
func (l leaf) untouched(st *unix.Stat_t) bool {
	return l.plain && l.written(st) && nanos(st.Ctim) != 0 && l.at(atCtime) == seconds(st.Ctim) && l.at(atCtime+4) == nanos(st.Ctim)
}

func (w *Workspace) index() string { return filepath.Join(w.Dir, ".git", "index") }

// note remembers the files as they were handed over, for Salvage not to read again
// those that nobody has touched: on disk, and by its checksum here, because a
// command of our own user could write there.
func (w *Workspace) note() error {
	raw, err := readRegular(w.index(), maxIndex)
	if err != nil {
		return nil //nolint:nilerr // Salvage reads them all
	}
	if err := writeFile(filepath.Join(w.root, "index"), raw); err != nil {
		return err
	}
	w.noted = sha256.Sum256(raw)
	return nil
}

// handed are the files as they were handed over, none if that is not known.
func (w *Workspace) handed() map[string]leaf {
	raw, err := readRegular(filepath.Join(w.root, "index"), maxIndex)
	if err != nil || sha256.Sum256(raw) != w.noted {
		return nil
	}
	all, err := leaves(raw, len(w.Commit)/2)
	if err != nil {
		return nil
	}
	known := make(map[string]leaf, len(all))
	for _, l := range all {
		known[l.name] = l
	}
	return known
}
