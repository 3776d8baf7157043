package workspace

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// leaf is an entry of git's index in git's binary form, in which numbers have only their lower 32
// bits.
type leaf struct {
	stat   []byte // the file's metadata when git last read or wrote it
	object []byte
	name   string
	flags  uint16 // the entry's stage in a merge, and flags
	more   uint16 // further flags, since version 3
}

// The bits of leaf.flags and leaf.more that this package uses.
const (
	flagAssumed, flagExtended, flagStages, shiftStage = 0x8000, 0x4000, 0x3000, 12
	moreSkipped, moreIntended                         = 0x4000, 0x2000
)

// plain reports whether the entry has merge stage 0 and no flag.
func (l leaf) plain() bool { return l.flags&0xf000 == 0 }

func (l leaf) stage() int { return int(l.flags & flagStages >> shiftStage) }

// The offsets of the numbers in leaf.stat.
const (
	atCtime, atMtime, atInode, atMode, atOwner, atSize = 0, 8, 20, 24, 28, 36

	statBytes = 40
)

var errIndex = errors.New("it is not an index of a known version")

// parseIndex parses an index. hash is the size of an object's name in bytes. The field stat of an
// entry shares memory with raw, so a change to stat also changes raw. parseIndex refuses split and
// sparse indexes, because the entries of such an index are partly in other files.
func parseIndex(raw []byte, hash int) ([]leaf, error) {
	const header = 12
	if len(raw) < header+hash || string(raw[:4]) != "DIRC" {
		return nil, errIndex
	}
	body, sum := raw[:len(raw)-hash], raw[len(raw)-hash:]
	version, count := binary.BigEndian.Uint32(raw[4:]), int(binary.BigEndian.Uint32(raw[8:]))
	if version < 2 || version > 4 || !bytes.Equal(checksum(body, hash), sum) && !bytes.Equal(make([]byte, hash), sum) {
		return nil, errIndex
	}
	rest := body[header:]
	all := make([]leaf, 0, min(count, len(rest)/(statBytes+hash+2)))
	before, names := "", 0
	for range count {
		l, size, ok := nextLeaf(rest, hash, version == 4, before)
		if names += len(l.name); !ok || names > maxIndex {
			return nil, errIndex
		}
		all = append(all, l)
		rest, before = rest[size:], l.name
	}
	for len(rest) >= 8 { // extensions: git must understand every extension whose name begins with a lower-case letter
		size := int(binary.BigEndian.Uint32(rest[4:]))
		if rest[0] < 'A' || rest[0] > 'Z' || size > len(rest)-8 {
			return nil, errIndex
		}
		rest = rest[8+size:]
	}
	return all, nil
}

// nextLeaf reads one entry of an index and returns its size. If short is true, as in version 4 of
// the format, the entry does not contain its whole name: it has the number of bytes to remove from
// the end of the previous entry's name, and the bytes to append.
func nextLeaf(rest []byte, hash int, short bool, before string) (l leaf, size int, ok bool) {
	at := statBytes + hash + 2
	if len(rest) < at {
		return l, 0, false
	}
	l = leaf{
		stat: rest[:statBytes:statBytes], object: rest[statBytes : statBytes+hash],
		flags: binary.BigEndian.Uint16(rest[at-2:]),
	}
	if l.flags&flagExtended != 0 {
		if len(rest) < at+2 {
			return l, 0, false
		}
		l.more = binary.BigEndian.Uint16(rest[at:])
		at += 2
	}
	if short {
		strip, n := readVarint(rest[at:])
		if n == 0 || strip > len(before) {
			return l, 0, false
		}
		l.name, at = before[:len(before)-strip], at+n
	}
	long := bytes.IndexByte(rest[at:], 0)
	if long < 0 || len(l.name)+long == 0 || len(l.name)+long > maxName {
		return l, 0, false
	}
	l.name += string(rest[at : at+long])
	if size = at + long + 1; !short {
		size = (at + long + 8) &^ 7
	}
	return l, size, size <= len(rest)
}

// readVarint reads a number in git's variable-length form. n is the number of bytes read; it is 0
// if there is no valid number.
func readVarint(b []byte) (value, n int) {
	for n < len(b) && n < 4 {
		value = value<<7 | int(b[n]&0x7f)
		if n++; b[n-1]&0x80 == 0 {
			return value, n
		}
		value++
	}
	return 0, 0
}

// checksum returns the checksum that git writes at the end of an index.
func checksum(data []byte, hash int) []byte {
	if hash == sha256.Size {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data) //nolint:gosec // git requires this checksum
	return sum[:]
}

func (l leaf) at(i int) uint32      { return binary.BigEndian.Uint32(l.stat[i:]) }
func (l leaf) set(i int, to uint32) { binary.BigEndian.PutUint32(l.stat[i:], to) }
func (l leaf) entry() entry {
	return entry{mode: fmt.Sprintf("%06o", l.at(atMode)), object: hex.EncodeToString(l.object)}
}
func seconds(t unix.Timespec) uint32 { return low(t.Sec) }
func nanos(t unix.Timespec) uint32   { return low(t.Nsec) }

// low returns the lower 32 bits of a number. git stores only these bits.
func low[T ~int32 | ~int64 | ~uint64](n T) uint32 { return uint32(n) }

// unwritten reports whether the file with the metadata st is the file of the index entry and was
// not written after git recorded the entry. The owner of the file may have changed.
func (l leaf) unwritten(st *unix.Stat_t) bool {
	return l.at(atMtime) == seconds(st.Mtim) && l.at(atMtime+4) == nanos(st.Mtim) &&
		l.at(atInode) == low(st.Ino) && l.at(atSize) == low(st.Size) &&
		l.at(atMode)&unix.S_IFMT == uint32(st.Mode)&unix.S_IFMT //nolint:unconvert // 16 bits on other systems
}

// untouched reports whether nothing about a file has changed since the checkout, not even its
// metadata. It compares the file's change time, which no user can set. On a file system that
// records times only in whole seconds, untouched always returns false.
func (l leaf) untouched(st *unix.Stat_t) bool {
	return l.plain() && l.unwritten(st) && nanos(st.Ctim) != 0 && l.at(atCtime) == seconds(st.Ctim) &&
		l.at(atCtime+4) == nanos(st.Ctim)
}

// note saves the state of the checkout before the command gets it: it writes the index, the refs
// and the configuration to dir. It returns the checksum of the index, because a command that runs
// as the user of this process could overwrite the saved index. notes lists the parts of the
// repository that the checkout lacks. Salvage later does not read files that are untouched
// according to the saved index.
func (at *site) note(ctx context.Context, dir string) (sum [sha256.Size]byte, notes []string, err error) {
	raw, err := readRegular(filepath.Join(at.Dir, ".git", "index"), maxIndex)
	if err == nil {
		if err := writeFile(filepath.Join(dir, "index"), raw); err != nil {
			return sum, notes, err
		}
		sum, notes = sha256.Sum256(raw), at.listMissing(raw)
	}
	var lost losses
	repo, err := openRepository(ctx, filepath.Join(at.Dir, ".git"))
	if err != nil {
		return sum, notes, err
	}
	defer repo.close()
	repo.readRefs(ctx, &lost)
	config, err := repo.read("config", maxConfig)
	if err != nil {
		return sum, notes, err
	}
	return sum, notes, errors.Join(writeFile(filepath.Join(dir, "refs"), repo.text()),
		writeFile(filepath.Join(dir, "config"), config))
}

// recall loads the files that note saved in dir, and skips missing files. It ignores an index that
// does not match the checksum sum. It does not check the other files, because a command that
// changes them harms only its own work.
func (at *site) recall(dir string, sum [sha256.Size]byte) {
	if raw, err := readRegular(filepath.Join(dir, "index"), maxIndex); err == nil && sha256.Sum256(raw) == sum {
		at.Index = raw
	}
	for name, to := range map[string]*[]byte{"refs": &at.Refs, "config": &at.Config} {
		if raw, err := readRegular(filepath.Join(dir, name), maxPackedRefs); err == nil {
			*to = raw
		}
	}
}

// savedIndex returns the index entries of the files as they were before the command got the
// checkout; nil if that index was not saved.
func (at *site) savedIndex() map[string]leaf {
	all, err := parseIndex(at.Index, at.hash())
	if err != nil {
		return nil
	}
	known := make(map[string]leaf, len(all))
	for _, l := range all {
		known[l.name] = l
	}
	return known
}
