package test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
	"testing"
)

// squeeze returns a picture with at most 256 colours, which makes it several times smaller: the most frequent colours
// stay, and every other one becomes the nearest of them.
func squeeze(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	must(t, err)
	flat := image.NewRGBA(from.Bounds())
	draw.Draw(flat, flat.Bounds(), from, from.Bounds().Min, draw.Src)
	count := make(map[color.RGBA]int)
	for i := 0; i < len(flat.Pix); i += 4 {
		count[color.RGBA{flat.Pix[i], flat.Pix[i+1], flat.Pix[i+2], 255}]++
	}
	colours := make([]color.RGBA, 0, len(count))
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	index := make(map[color.RGBA]uint8, len(colours))
	for i, c := range colours {
		if i < 256 {
			palette = append(palette, c)
			index[c] = uint8(i)
		} else {
			index[c] = uint8(palette.Index(c))
		}
	}
	out := image.NewPaletted(flat.Bounds(), palette)
	for i := range out.Pix {
		out.Pix[i] = index[color.RGBA{flat.Pix[4*i], flat.Pix[4*i+1], flat.Pix[4*i+2], 255}]
	}
	var b bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out))
	return b.Bytes()
}
