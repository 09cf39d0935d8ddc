// SPDX-License-Identifier: Apache-2.0
#include "report/xlsx.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "formats/zip.hpp"

namespace assay::report {
namespace {

constexpr std::string_view kXmlHead =
    "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
constexpr std::string_view kMain = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
constexpr std::string_view kRelations =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
constexpr std::string_view kPackage = "http://schemas.openxmlformats.org/package/2006";
constexpr size_t kMaxCellBytes = 32767;
constexpr size_t kMaxWidth = 60;
constexpr size_t kRowsForWidth = 200;

// XML 1.0 has no control characters: they become '_'. Cutting may split a character; repairing
// comes after it.
void append_escaped(std::string_view text, std::string* out) {
  for (const char c : repair_utf8(text.substr(0, kMaxCellBytes))) {
    switch (c) {
      case '&':
        *out += "&amp;";
        break;
      case '<':
        *out += "&lt;";
        break;
      case '>':
        *out += "&gt;";
        break;
      case '"':
        *out += "&quot;";
        break;
      default: {
        const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n';
        *out += control ? '_' : c;
      }
    }
  }
}

// 0 -> "A", 25 -> "Z", 26 -> "AA".
std::string column_letters(size_t column) {
  std::string letters;
  for (size_t n = column + 1; n > 0; n = (n - 1) / 26) {
    letters.insert(letters.begin(), static_cast<char>('A' + (n - 1) % 26));
  }
  return letters;
}

void append_text_cell(const std::string& place, std::string_view text, std::string_view style,
                      std::string* out) {
  *out += "<c r=\"" + place + "\" t=\"inlineStr\"" + std::string(style) +
          "><is><t xml:space=\"preserve\">";
  append_escaped(text, out);
  *out += "</t></is></c>";
}

void append_cell(const std::string& place, const Cell& cell, std::string* out) {
  const bool infinite = cell.kind == Cell::Kind::Number && std::isinf(cell.number);
  if (cell.kind == Cell::Kind::Text || infinite) {
    append_text_cell(place, cell.csv_text(), "", out);
  } else if (cell.kind != Cell::Kind::Empty) {
    *out += "<c r=\"" + place + "\"><v>" + cell.csv_text() + "</v></c>";
  }
}

std::vector<size_t> column_widths(const Table& table, size_t first, size_t end) {
  std::vector<size_t> widths;
  for (const std::string& name : table.columns) widths.push_back(name.size());
  for (size_t r = first; r < std::min(end, first + kRowsForWidth); ++r) {
    for (size_t c = 0; c < table.rows[r].size() && c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], table.rows[r][c].csv_text().size());
    }
  }
  for (size_t& width : widths) width = std::min(width + 2, kMaxWidth);
  return widths;
}

std::string sheet_xml(const Table& table, size_t first, size_t end) {
  std::string out(kXmlHead);
  const std::string last = column_letters(std::max<size_t>(table.columns.size(), 1) - 1);
  const std::string range = "A1:" + last + std::to_string(end - first + 1);
  out += "<worksheet xmlns=\"" + std::string(kMain) + "\"><dimension ref=\"" + range + "\"/>";
  out +=
      "<sheetViews><sheetView workbookViewId=\"0\"><pane ySplit=\"1\" topLeftCell=\"A2\" "
      "activePane=\"bottomLeft\" state=\"frozen\"/></sheetView></sheetViews><cols>";
  const std::vector<size_t> widths = column_widths(table, first, end);
  for (size_t c = 0; c < widths.size(); ++c) {
    const std::string number = std::to_string(c + 1);
    out += "<col min=\"" + number + "\" max=\"" + number + "\" width=\"" +
           std::to_string(widths[c]) + "\" customWidth=\"1\"/>";
  }
  out += "</cols><sheetData><row r=\"1\">";
  for (size_t c = 0; c < table.columns.size(); ++c) {
    append_text_cell(column_letters(c) + "1", table.columns[c], " s=\"1\"", &out);
  }
  out += "</row>";
  std::vector<std::string> letters;
  for (size_t c = 0; c < table.columns.size(); ++c) letters.push_back(column_letters(c));
  for (size_t r = first; r < end; ++r) {
    const std::string number = std::to_string(r - first + 2);
    out += "<row r=\"" + number + "\">";
    for (size_t c = 0; c < table.rows[r].size(); ++c) {
      append_cell(letters[c] + number, table.rows[r][c], &out);
    }
    out += "</row>";
  }
  out += "</sheetData><autoFilter ref=\"" + range + "\"/></worksheet>";
  return out;
}

std::string content_types_xml(size_t sheet_count) {
  const std::string type = "application/vnd.openxmlformats-officedocument.spreadsheetml.";
  std::string out(kXmlHead);
  out += "<Types xmlns=\"" + std::string(kPackage) +
         "/content-types\"><Default Extension=\"rels\" "
         "ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>"
         "<Default Extension=\"xml\" ContentType=\"application/xml\"/>"
         "<Override PartName=\"/xl/workbook.xml\" ContentType=\"" +
         type +
         "sheet.main+xml\"/>"
         "<Override PartName=\"/xl/styles.xml\" ContentType=\"" +
         type + "styles+xml\"/>";
  for (size_t i = 1; i <= sheet_count; ++i) {
    out += "<Override PartName=\"/xl/worksheets/sheet" + std::to_string(i) +
           ".xml\" ContentType=\"" + type + "worksheet+xml\"/>";
  }
  return out + "</Types>";
}

std::string package_relations_xml() {
  return std::string(kXmlHead) + "<Relationships xmlns=\"" + std::string(kPackage) +
         "/relationships\"><Relationship Id=\"rId1\" Type=\"" + std::string(kRelations) +
         "/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>";
}

std::string workbook_relations_xml(size_t sheet_count) {
  std::string out(kXmlHead);
  out += "<Relationships xmlns=\"" + std::string(kPackage) + "/relationships\">";
  for (size_t i = 1; i <= sheet_count; ++i) {
    out += "<Relationship Id=\"rId" + std::to_string(i) + "\" Type=\"" + std::string(kRelations) +
           "/worksheet\" Target=\"worksheets/sheet" + std::to_string(i) + ".xml\"/>";
  }
  out += "<Relationship Id=\"rId" + std::to_string(sheet_count + 1) + "\" Type=\"" +
         std::string(kRelations) + "/styles\" Target=\"styles.xml\"/>";
  return out + "</Relationships>";
}

std::string workbook_xml(const std::vector<std::string>& names) {
  std::string out(kXmlHead);
  out += "<workbook xmlns=\"" + std::string(kMain) + "\" xmlns:r=\"" + std::string(kRelations) +
         "\"><sheets>";
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    out += "<sheet name=\"";
    append_escaped(names[i], &out);
    out += "\" sheetId=\"" + number + "\" r:id=\"rId" + number + "\"/>";
  }
  return out + "</sheets></workbook>";
}

// Style 0 is plain, style 1 bold for the header row.
std::string styles_xml() {
  return std::string(kXmlHead) + "<styleSheet xmlns=\"" + std::string(kMain) +
         "\"><fonts count=\"2\"><font><sz val=\"11\"/><name val=\"Calibri\"/></font>"
         "<font><b/><sz val=\"11\"/><name val=\"Calibri\"/></font></fonts>"
         "<fills count=\"2\"><fill><patternFill patternType=\"none\"/></fill>"
         "<fill><patternFill patternType=\"gray125\"/></fill></fills>"
         "<borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border></borders>"
         "<cellStyleXfs count=\"1\"><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\"/>"
         "</cellStyleXfs><cellXfs count=\"2\">"
         "<xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\" xfId=\"0\"/>"
         "<xf numFmtId=\"0\" fontId=\"1\" fillId=\"0\" borderId=\"0\" xfId=\"0\" applyFont=\"1\"/>"
         "</cellXfs><cellStyles count=\"1\"><cellStyle name=\"Normal\" xfId=\"0\" builtinId=\"0\"/>"
         "</cellStyles></styleSheet>";
}

}  // namespace

Result<std::string> xlsx_bytes(std::span<const Table> tables, size_t max_sheet_rows) {
  std::string out;
  formats::ZipWriter zip(&out);
  const auto add = [&](std::string_view name, const std::string& content) {
    return zip.add(name, as_bytes(content), formats::ZipMethod::Deflated);
  };
  std::vector<std::string> names;
  for (const Table& table : tables) {
    size_t first = 0;
    for (int part = 1;; ++part) {
      const size_t end = std::min(table.rows.size(), first + max_sheet_rows - 1);
      names.push_back(part == 1 ? table.name : table.name + " (" + std::to_string(part) + ")");
      ASSAY_TRY_STATUS(add("xl/worksheets/sheet" + std::to_string(names.size()) + ".xml",
                           sheet_xml(table, first, end)));
      first = end;
      if (first == table.rows.size()) break;
    }
  }
  ASSAY_TRY_STATUS(add("[Content_Types].xml", content_types_xml(names.size())));
  ASSAY_TRY_STATUS(add("_rels/.rels", package_relations_xml()));
  ASSAY_TRY_STATUS(add("xl/workbook.xml", workbook_xml(names)));
  ASSAY_TRY_STATUS(add("xl/_rels/workbook.xml.rels", workbook_relations_xml(names.size())));
  ASSAY_TRY_STATUS(add("xl/styles.xml", styles_xml()));
  ASSAY_TRY_STATUS(zip.finish());
  return out;
}

}  // namespace assay::report
